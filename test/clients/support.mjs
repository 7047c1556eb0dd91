// SPDX-License-Identifier: Apache-2.0
// What all clients' tests share: servers, documents, and the client packages.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

/** Loads a package of the folder that run.sh installed. */
export const client_package = createRequire(path.join(process.env.QPN_CLIENT_MODULES, 'from-here.js'));

export function package_version(name) {
  const at = path.join(process.env.QPN_CLIENT_MODULES, 'node_modules', name, 'package.json');
  return JSON.parse(readFileSync(at, 'utf8')).version;
}

export class Server {
  /** Resolves once the program has printed where it listens. */
  static start(program, ...args) {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    return new Promise((resolve, reject) => {
      let said = '';
      child.on('error', reject);
      child.on('exit', (code) => reject(new Error(`${program} ended with ${code} before it listened`)));
      child.stdout.on('data', (bytes) => {
        said += bytes;
        const found = /listening on (\S+)\n/.exec(said);
        if (found) resolve(new Server(child, found[1]));
      });
    });
  }
  constructor(child, url) {
    this.child = child;
    this.url = url;
    this.base = url + '/v1';
  }
  async stop() {
    this.child.removeAllListeners('exit');
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGTERM');
    const code = await ended;
    if (code !== 0) throw new Error(`the server ended with ${code} after SIGTERM`);
  }
  /** Samples of /metrics by name and labels. */
  async metrics(key) {
    const reply = await fetch(this.url + '/metrics', { headers: { Authorization: `Bearer ${key}` } });
    const lines = (await reply.text()).split('\n').filter((line) => line && !line.startsWith('#'));
    return Object.fromEntries(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]));
  }
}

/** Documents of the demo checkpoint with a known answer, without and with a think block. */
export function documents(model) {
  const all = readFileSync(path.join(model, 'eval', 'heldout.jsonl'), 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  return {
    quick: all.find((one) => !one.enable_thinking && one.system === null),
    with_system: all.find((one) => !one.enable_thinking && one.system !== null),
    thinking: all.find((one) => one.enable_thinking && one.reasoning_effort === 'xhigh' && one.system === null),
  };
}

export const unicode_text = 'Gr\u00fc\u00dfe, \u4f60\u597d \u{1f638} \u{1f469}\u200d\u{1f467} \u{1f1e9}\u{1f1ea} \u05e9\u05dc\u05d5\u05dd';
export const secret_word = 'quartz-4711';
export const weather_tool = {
  name: 'get_weather',
  description: 'The weather of a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer' } },
    required: ['city', 'days'],
  },
};
export const weather_arguments = { city: 'Z\u00fcrich "north"', days: 3 };

/** A call as Qwen's template has the model write it. */
function call_text(name, parameters) {
  const lines = Object.entries(parameters).map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`);
  return `<tool_call>\n<function=${name}>\n${lines.join('')}</function>\n</tool_call>`;
}

/** What the playback server answers; the first line that stands in the prompt counts. */
export function write_script(file, read_path) {
  const lines = [
    ['unicode please', unicode_text],
    ['it rains frogs', 'Frogs, then.'],
    ['weather please', 'I look it up.</think>\n\n' + call_text('get_weather', weather_arguments)],
    [secret_word, `I know it.</think>\n\nThe file says ${secret_word}.`],
    ['read the file', 'I read it.</think>\n\n' + call_text('read_file', { file_path: read_path })],
    ['', 'ok'],
  ];
  writeFileSync(file, lines.map(([contains, answer]) => JSON.stringify({ contains, answer }) + '\n').join(''));
}

/** Polls until `holds` does; fails with `what` after 20 s. */
export async function eventually(holds, what) {
  for (const end = Date.now() + 20_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 20))) {
    if (await holds()) return;
  }
  throw new Error(`not within 20 s: ${what}`);
}
