// SPDX-License-Identifier: Apache-2.0
import type { MessageInitShape } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { AuditEntry, AuditFilterSchema } from '../gen/ichor/v1alpha1/hub_pb';
import { AuditResult } from '../gen/ichor/v1alpha1/hub_pb';

/** ResultKey is the name of a result among the texts of the page. */
export type ResultKey = 'done' | 'denied' | 'refused' | 'failed';

/** auditResults are all that there are. */
export const auditResults: readonly ResultKey[] = ['done', 'denied', 'refused', 'failed'];

const results: Record<ResultKey, AuditResult> = {
  done: AuditResult.DONE,
  denied: AuditResult.DENIED,
  refused: AuditResult.REFUSED,
  failed: AuditResult.FAILED,
};

/** resultKey is the name of a result. */
export function resultKey(result: AuditResult): ResultKey | 'unknown' {
  return auditResults.find((key) => results[key] === result) ?? 'unknown';
}

/** AuditQuery is what the page of the audit shows; it is in the address. */
export interface AuditQuery {
  text: string;
  result: ResultKey | '';
  follow: boolean;
}

/** parseAuditQuery reads an address. */
export function parseAuditQuery(search: string): AuditQuery {
  const params = new URLSearchParams(search);
  const result = params.get('result') ?? '';
  return {
    text: params.get('q') ?? '',
    result: auditResults.find((key) => key === result) ?? '',
    follow: params.get('follow') === '1',
  };
}

/** formatAuditQuery writes an address: the inverse of parseAuditQuery. */
export function formatAuditQuery(query: AuditQuery): string {
  const params = new URLSearchParams();
  if (query.text !== '') {
    params.set('q', query.text);
  }
  if (query.result !== '') {
    params.set('result', query.result);
  }
  if (query.follow) {
    params.set('follow', '1');
  }
  return params.toString();
}

/** auditFilter is what the service is asked for. */
export function auditFilter(query: AuditQuery): MessageInitShape<typeof AuditFilterSchema> {
  return { text: query.text, results: query.result === '' ? [] : [results[query.result]] };
}

const time = (entry: AuditEntry) => (entry.time ? timestampMs(entry.time) : 0);

/** joinEntries puts entries of a watch and of a list together, each once, the newest first. */
export function joinEntries(watched: readonly AuditEntry[], listed: readonly AuditEntry[]): AuditEntry[] {
  const all = new Map([...listed, ...watched].map((entry) => [entry.id, entry]));
  return [...all.values()].sort((a, b) => time(b) - time(a) || (a.id < b.id ? 1 : -1));
}
