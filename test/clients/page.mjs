// SPDX-License-Identifier: Apache-2.0
// docs/clients.md from the results of a run.
import { features } from './features.mjs';

/** clients: [{name, version, results: {feature: {state: 'passed'|'failed', note?}}}]. */
export function page(clients, server_version) {
  const notes = [];
  const cell = (result) => {
    if (!result) return '-';
    if (result.state === 'failed') return '**no**';
    if (!result.note) return 'yes';
    notes.push(result.note);
    return `yes (${notes.length})`;
  };
  const row = (cells) => `| ${cells.join(' | ')} |`;
  const rows = features.map(([id, text]) => row([text, ...clients.map((client) => cell(client.results[id]))]));
  return [
    '# Clients',
    '',
    'What real clients do with `qwen38_server` ' + server_version + ', over loopback. This page is written by the run itself,',
    '`bash test/clients/run.sh --write`; without `--write` it fails where the page differs. The packages come from npm at the',
    'versions of `test/clients/package-lock.json`. Answers that a test checks word by word come from the demo checkpoint;',
    'those with tool calls and rare characters are played back as token ids through the same server.',
    '',
    row(['', ...clients.map((client) => `${client.name} ${client.version}`)]),
    row(['---', ...clients.map(() => '---')]),
    ...rows,
    '',
    '- yes: a test of `test/clients` does it and checks what comes back. -: the client has nothing of the kind.',
    ...notes.map((note, index) => `- (${index + 1}) ${note}`),
    '',
  ].join('\n');
}
