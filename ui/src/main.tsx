// SPDX-License-Identifier: Apache-2.0
import { createRoot } from 'react-dom/client';
import { decodeShortTexts } from './api/text';
import { hubTransport } from './api/transport';
import { App } from './app/App';
import { connectHub } from './app/hub';
import { applySettings, settings } from './app/settings';
import { startLanguage } from './i18n';
import './styles/tokens.css';
import './styles/base.css';

const root = document.getElementById('root');
if (!root) {
  throw new Error('index.html has no element with the id root');
}
applySettings();
decodeShortTexts();
const hub = connectHub(hubTransport(window.location.origin));
await startLanguage(settings.get().language);
createRoot(root).render(<App hub={hub} />);
