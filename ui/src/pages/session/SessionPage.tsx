// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import { useSession } from '../../app/hub';
import { useTitle } from '../../app/Shell';
import type { NamespaceRights } from '../../gen/ichor/v1alpha1/hub_pb';
import { anyRight } from '../../lib/rights';
import { Fact, Facts } from '../../parts/Facts';
import { Page, Quiet, Section } from '../../parts/Section';
import { Table } from '../../parts/Table';
import { When } from '../../parts/When';

const methods = ['token', 'oidc', 'link', 'kubeconfig'] as const;

/** SessionPage is who is signed in, and what they may do. */
export function SessionPage() {
  const { t } = useTranslation();
  const { hub, session } = useSession();
  useTitle(t('session.title'));
  const rights = session.rights.filter(anyRight);
  const method = methods.find((each) => each === session.method) ?? 'other';
  return (
    <Page>
      <h1>{t('session.title')}</h1>
      <Section title={session.user}>
        <Facts>
          <Fact name={t('session.method')}>{t(`session.methods.${method}`)}</Fact>
          <Fact name={t('session.expires')}>
            {session.expireTime && <When time={session.expireTime} show="absolute" />}
          </Fact>
          <Fact name={t('session.groups')}>{session.groups.join(', ')}</Fact>
          <Fact name={t('session.hub')}>{hub.name}</Fact>
          <Fact name={t('session.version')}>{hub.version}</Fact>
        </Facts>
      </Section>
      <Section title={t('session.rights')} bare={rights.length > 0}>
        {rights.length === 0 ? <Quiet>{t('session.nothing')}</Quiet> : <RightsTable rights={rights} />}
      </Section>
    </Page>
  );
}

function RightsTable({ rights }: { rights: readonly NamespaceRights[] }) {
  const { t } = useTranslation();
  return (
    <Table
      label={t('session.rights')}
      rows={rights}
      keyOf={(row) => row.namespace}
      columns={[
        { title: t('session.namespace'), cell: (row) => row.namespace || t('session.everyNamespace') },
        { title: t('session.may'), cell: (row) => <May rights={row} /> },
        { title: t('session.mayStart'), cell: (row) => row.start.join(', ') || t('app.none') },
      ]}
    />
  );
}

function May({ rights }: { rights: NamespaceRights }) {
  const { t } = useTranslation();
  const names = ['read', 'operate', 'machines', 'clusters', 'override'] as const;
  const held = names.filter((name) => rights[name]);
  return held.length === 1 && held[0] === 'read' ? (
    t('session.readOnly')
  ) : (
    <ul>
      {held.map((name) => (
        <li key={name}>{t(`session.${name}`)}</li>
      ))}
    </ul>
  );
}
