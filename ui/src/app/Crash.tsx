// SPDX-License-Identifier: Apache-2.0
import { Component } from 'react';
import { useTranslation } from 'react-i18next';
import { Button } from '../parts/Button';
import { Notice } from '../parts/Notice';

/** Crash keeps a defect of one page from taking the others with it. */
export class Crash extends Component<{ children: React.ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    return this.state.error === undefined ? this.props.children : <Broken error={this.state.error} />;
  }
}

function Broken({ error }: { error: unknown }) {
  const { t } = useTranslation();
  return (
    <Notice mark="failed" role="alert" title={t('app.crashed')}>
      <p lang="en">{error instanceof Error ? error.message : String(error)}</p>
      <div>
        <Button onClick={() => window.location.reload()}>{t('app.reload')}</Button>
      </div>
    </Notice>
  );
}
