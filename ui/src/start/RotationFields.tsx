// SPDX-License-Identifier: Apache-2.0
import { useTranslation } from 'react-i18next';
import type { Draft } from '../lib/orders';
import { Choice } from '../parts/Choice';
import type { FieldsProps } from './fields';

/** CARotationFields are those of a rotation of certificate authorities, and what it leaves alone. */
export function CARotationFields({ draft, change }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <>
      <p>{t('start.caHelp')}</p>
      <Choice<Draft['authorities']>
        label={t('start.authorities')}
        value={draft.authorities}
        options={[
          { value: 'Both', label: t('start.authoritiesBoth'), help: t('start.oneAfterTheOther') },
          { value: 'Talos', label: t('authority.Talos'), help: t('start.authorityHelp.Talos') },
          { value: 'Kubernetes', label: t('authority.Kubernetes'), help: t('start.authorityHelp.Kubernetes') },
        ]}
        onChange={(authorities) => change({ authorities })}
      />
      <p>{t('start.caNotRotated')}</p>
    </>
  );
}

/** KeyRotationFields are those of a rotation of keys. */
export function KeyRotationFields({ draft, change }: FieldsProps) {
  const { t } = useTranslation();
  return (
    <>
      <p>{t('start.keysHelp')}</p>
      <Choice<Draft['keys']>
        label={t('start.keys')}
        value={draft.keys}
        options={[
          { value: 'Both', label: t('start.keysBoth'), help: t('start.oneAfterTheOther') },
          { value: 'ServiceAccount', label: t('key.ServiceAccount'), help: t('start.keyHelp.ServiceAccount') },
          { value: 'Secretbox', label: t('key.Secretbox'), help: t('start.keyHelp.Secretbox') },
        ]}
        onChange={(keys) => change({ keys })}
      />
      <p>{t('start.keysNotRotated')}</p>
    </>
  );
}
