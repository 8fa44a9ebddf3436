// SPDX-License-Identifier: Apache-2.0
import { useQuery } from '@connectrpc/connect-query';
import { useEffect, useRef } from 'react';
import { useTranslation } from 'react-i18next';
import type { Operation, OperationEvent } from '../../gen/ichor/v1alpha1/operation_pb';
import { OperationService } from '../../gen/ichor/v1alpha1/operation_pb';
import { CallFailure } from '../../parts/Failure';
import { Mark } from '../../parts/Mark';
import { Quiet, Section } from '../../parts/Section';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';

/** Events come after what they are about; this long after a change they are asked for. */
const later = 1_000;

/** Events are what was recorded about an operation, the latest first. They are read again whenever the operation has changed. */
export function Events({ operation }: { operation: Operation }) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(OperationService.method.getOperation, { ref: operation.ref });
  const known = useRef(operation);
  useEffect(() => {
    if (known.current === operation) {
      return;
    }
    known.current = operation;
    const timer = setTimeout(() => void refetch(), later);
    return () => clearTimeout(timer);
  }, [operation, refetch]);
  const events = [...(data?.events ?? [])].reverse();
  return (
    <Section title={t('operation.events')} bare={events.length > 0}>
      {error && <CallFailure error={error} />}
      {events.length === 0 && !error && <Quiet>{t('operation.noEvents')}</Quiet>}
      {events.length > 0 && <EventTable events={events} />}
    </Section>
  );
}

function EventTable({ events }: { events: readonly OperationEvent[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t('operation.events')}
      rows={events}
      keyOf={(event) => `${event.time?.seconds}${event.reason}${event.message}`}
      columns={[
        { title: t('audit.time'), cell: (event) => <When time={event.time} show="absolute" /> },
        {
          title: t('operation.reason'),
          cell: (event) => <Mark mark={event.warning ? 'soon' : 'ok'}>{event.reason}</Mark>,
        },
        {
          title: t('cluster.meaning'),
          grow: true,
          cell: (event) => (
            <span lang="en">
              {event.message} {event.count > 1 && `(${t('operation.times', { count: event.count })})`}
            </span>
          ),
        },
      ]}
    />
  );
}
