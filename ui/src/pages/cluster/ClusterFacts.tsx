// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Cluster, VersionRange } from '../../gen/ichor/v1alpha1/cluster_pb';
import { ClusterMode } from '../../gen/ichor/v1alpha1/cluster_pb';
import { Fact, Facts } from '../../parts/Facts';
import { Section } from '../../parts/Section';
import { When } from '../../parts/When';
import css from './Cluster.module.css';

/** ClusterFacts are the summary of a cluster. */
export function ClusterFacts({ cluster }: { cluster: Cluster }) {
  const { t } = useTranslation();
  const labels = Object.entries(cluster.labels).sort(([a], [b]) => (a < b ? -1 : 1));
  const parts = [
    t('cluster.controlPlanes', { count: cluster.controlPlanes }),
    t('cluster.workers', { count: cluster.workers }),
  ];
  return (
    <Section title={t('cluster.summary')}>
      <Facts>
        <Fact name="Talos">
          <Versions observed={cluster.talosVersions} desired={cluster.desired?.talosVersion ?? ''} />
        </Fact>
        <Fact name="Kubernetes">
          <Versions observed={cluster.kubernetesVersions} desired={cluster.desired?.kubernetesVersion ?? ''} />
        </Fact>
        <Fact name={t('cluster.machines')}>
          {t('fleet.readyLong', { ready: cluster.machinesReady, count: cluster.controlPlanes + cluster.workers })}
          <div className={css.quiet}>{parts.join(' · ')}</div>
        </Fact>
        <Fact name={t('cluster.endpoint')}>{cluster.endpoint && <code>{cluster.endpoint}</code>}</Fact>
        <Fact name={t('cluster.mode')}>
          {t(cluster.mode === ClusterMode.ADOPTED ? 'cluster.adopted' : 'cluster.imported')}
        </Fact>
        <Fact name={t('cluster.created')}>
          <When time={cluster.createTime} show="absolute" />
        </Fact>
        <Fact name={t('cluster.labels')}>
          {labels.length > 0 && (
            <ul className={css.labels}>
              {labels.map(([key, value]) => (
                <li key={key} className={css.label}>
                  {key}={value}
                </li>
              ))}
            </ul>
          )}
        </Fact>
      </Facts>
    </Section>
  );
}

/** Versions are what machines run, and what the spec asks for where that differs. */
function Versions({ observed, desired }: { observed: VersionRange | undefined; desired: string }) {
  const { t } = useTranslation();
  const { lowest = '', highest = '' } = observed ?? {};
  const runs = highest !== lowest ? t('fleet.versions', { lowest, highest }) : lowest || t('app.unknown');
  const differs = desired !== '' && (lowest !== desired || highest !== desired);
  return (
    <>
      {runs}
      {desired !== '' && (
        <div className={differs ? css.wanted : css.quiet}>
          {differs ? t('fleet.wanted', { version: desired }) : t('cluster.inSync')}
        </div>
      )}
    </>
  );
}
