// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { Link, useParams } from 'wouter';
import { useFeed, useRows } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { Operation as OperationMessage } from '../../gen/ichor/v1alpha1/operation_pb';
import { actionOf, isOver, phaseKey, turnedBack } from '../../lib/operations';
import { clusterPath, refKey } from '../../lib/refs';
import { operationMark } from '../../lib/state';
import { operationFeed } from '../../live/feed';
import { Conditions } from '../../parts/Conditions';
import { kindWords } from '../../parts/kind';
import { Mark } from '../../parts/Mark';
import { Page, Quiet, Section } from '../../parts/Section';
import { Answer } from './Answer';
import { Events } from './Events';
import css from './Operation.module.css';
import { OperationFacts } from './OperationFacts';
import { Steering } from './Steering';
import { TimelineChart } from './TimelineChart';
import { useOperationNews } from './useOperationNews';

/** Operation is the page of one operation. */
export function Operation() {
  const { t } = useTranslation();
  const params = useParams<{ namespace: string; name: string }>();
  const ref = { namespace: params.namespace, name: params.name };
  const feed = useFeed(`operation ${refKey(ref)}`, (transport) => operationFeed(transport, { names: [ref] }));
  const { rows, synced } = useRows(feed);
  const operation = rows[0];
  useTitle(ref.name);
  useOperationNews(feed);
  if (!operation) {
    return (
      <Page>
        <h1>{ref.name}</h1>
        <Quiet>{synced ? t('operation.gone', { name: refKey(ref) }) : t('app.loading')}</Quiet>
      </Page>
    );
  }
  return <OperationPage operation={operation} />;
}

function OperationPage({ operation }: { operation: OperationMessage }) {
  const { t } = useTranslation();
  return (
    <Page>
      <header className={css.head}>
        <div className={css.titles}>
          <h1>{operation.ref?.name}</h1>
          <Subtitle operation={operation} />
        </div>
        <Steering operation={operation} />
      </header>
      <Answer operation={operation} />
      <Section title={t('operation.timeline')}>
        <TimelineChart operation={operation} />
      </Section>
      <OperationFacts operation={operation} />
      <Section title={t('operation.conditions')} bare>
        <Conditions label={t('operation.conditions')} conditions={operation.conditions} />
      </Section>
      <Events operation={operation} />
    </Page>
  );
}

function Subtitle({ operation }: { operation: OperationMessage }) {
  const { t } = useTranslation();
  return (
    <p className={css.subtitle}>
      {isOver(operation) ? (
        <Mark mark="ok">{t(turnedBack(operation) ? 'phase.turnedBack' : 'phase.completed')}</Mark>
      ) : (
        <>
          <Mark mark={operationMark(operation.phase, operation.attention)} />
          <span>{t(`phase.${phaseKey(operation.phase)}`)}</span>
        </>
      )}
      <span>{kindWords(t, operation.kind, actionOf(operation))}</span>
      {operation.cluster && (
        <span>
          <Link href={clusterPath(operation.cluster)}>{operation.cluster.name}</Link>{' '}
          <span className={css.quiet}>{operation.cluster.namespace}</span>
        </span>
      )}
    </p>
  );
}
