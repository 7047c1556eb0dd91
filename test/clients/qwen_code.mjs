// SPDX-License-Identifier: Apache-2.0
// The agent qwen-code, in a folder and a home of its own, against answers that are played back.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { secret_word } from './support.mjs';

export const name = '@qwen-code/qwen-code';

function run_agent(folder, home, base, prompt) {
  const cli = path.join(process.env.QPN_CLIENT_MODULES, 'node_modules', name, 'cli.js');
  const child = spawn(process.execPath, [cli, '--bare', '--yolo', '--output-format', 'json', '--auth-type', 'openai', '--model', 'playback',
                                         '--openai-api-key', 'any', '--openai-base-url', base, '--prompt', prompt], {
    cwd: folder, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120_000,
    env: { PATH: process.env.PATH, HOME: home, NO_COLOR: '1', QWEN_CODE_DISABLE_TELEMETRY: '1' },
  });
  return new Promise((resolve, reject) => {
    let out = '';
    let errors = '';
    child.stdout.on('data', (bytes) => { out += bytes; });
    child.stderr.on('data', (bytes) => { errors += bytes; });
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve(out) : reject(new Error(`qwen-code ended with ${code}: ${errors.slice(-2000)}${out.slice(-2000)}`))));
  });
}

export function tests({ playback, folder, home }) {
  return {
    async agent() {
      const events = JSON.parse(await run_agent(folder, home, playback.base, 'please read the file'));
      const blocks = events.flatMap((event) => event.message?.content ?? []);
      const calls = blocks.filter((block) => block.type === 'tool_use');
      assert.deepEqual(calls.map((call) => call.name), ['read_file']);
      assert.ok(JSON.stringify(blocks.filter((block) => block.type === 'tool_result')).includes(secret_word));
      assert.match(events.at(-1).result, new RegExp(`The file says ${secret_word}\\.`));
    },
  };
}
