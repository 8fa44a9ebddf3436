// SPDX-License-Identifier: Apache-2.0
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The hub that `npm run dev` shows; its page and its service have one origin, as in production.
const hub = process.env.ICHOR_HUB ?? 'https://127.0.0.1:8443';
const proxied = { target: hub, secure: false, changeOrigin: false };

export default defineConfig({
  plugins: [react()],
  server: { host: '127.0.0.1', proxy: { '/ichor.v1alpha1.': proxied, '/auth/': proxied } },
  build: {
    target: 'es2023',
    outDir: 'dist',
    // The policy forbids data: URLs, so that everything is a file.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
  },
});
