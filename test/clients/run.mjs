// SPDX-License-Identifier: Apache-2.0
// Runs every client's tests against the server and against answers that are played back; run.sh calls it:
//   node run.mjs SERVER PLAYBACK_SERVER MODEL_DIRECTORY PAGE EXPECTED_CLIENTS [--write]
// Fails for a test that fails, for another number of clients that ran than expected, and where PAGE is not what this
// run writes.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as ai_sdk from './ai_sdk.mjs';
import { features } from './features.mjs';
import * as langchain from './langchain.mjs';
import * as openai from './openai.mjs';
import { page } from './page.mjs';
import * as qwen_code from './qwen_code.mjs';
import { Server, documents, package_version, secret_word, write_script } from './support.mjs';

const [server_program, playback_program, model_directory, page_path, expected, write] = process.argv.slice(2);
const clients = [openai, ai_sdk, langchain, qwen_code];
const key = 'sk-client-test';

async function run_client(client, world) {
  const tests = client.tests(world);
  const unknown = Object.keys(tests).filter((id) => !features.some(([known]) => known === id));
  if (unknown.length > 0) throw new Error(`${client.name}: features.mjs has no ${unknown.join(', ')}`);
  const results = {};
  for (const [id] of features.filter(([known]) => known in tests)) {
    const begin = performance.now();
    try {
      results[id] = { state: 'passed', note: await tests[id]() };
    } catch (problem) {
      results[id] = { state: 'failed' };
      console.error(problem);
    }
    console.log(`${results[id].state.padEnd(8)} ${client.name} ${id} (${Math.round(performance.now() - begin)} ms)`);
  }
  return { name: client.name, version: package_version(client.name), results };
}

const scratch = mkdtempSync(path.join(os.tmpdir(), 'qpn-clients-'));
const folder = path.join(scratch, 'project');
const home = path.join(scratch, 'home');
const script = path.join(scratch, 'script.jsonl');
const read_path = path.join(folder, 'note.txt');
mkdirSync(folder);
mkdirSync(home);
writeFileSync(read_path, `${secret_word}\n`);
write_script(script, read_path);

let failed = 0;
const server = await Server.start(server_program, 'serve', '--model', model_directory, '--port', '0', '--lanes', '4', '--api-key', key, '--name', 'demo');
const playback = await Server.start(playback_program, model_directory, script);
try {
  const { version } = await (await fetch(server.url + '/version', { headers: { Authorization: `Bearer ${key}` } })).json();
  const ran = [];
  for (const client of clients) {
    ran.push(await run_client(client, { server, playback, key, model: 'demo', docs: documents(model_directory), folder, home }));
  }
  const states = ran.flatMap((client) => Object.values(client.results).map((result) => result.state));
  const count = (state) => states.filter((one) => one === state).length;
  const active = ran.filter((client) => Object.keys(client.results).length > 0).length;
  console.log(`\nclients: ${active} ran; tests: ${count('passed')} passed, ${count('failed')} failed`);
  failed += count('failed');
  if (expected !== 'any' && active !== Number(expected)) {
    console.error(`${active} clients ran, expected ${expected}.`);
    ++failed;
  }
  const written = page(ran, version);
  if (write === '--write') {
    writeFileSync(page_path, written);
  } else if (readFileSync(page_path, 'utf8') !== written) {
    console.error(`${page_path} is not what this run writes; run test/clients/run.sh --write and look at the difference.`);
    ++failed;
  }
} finally {
  await playback.stop();
  await server.stop();
  rmSync(scratch, { recursive: true });
}
process.exit(failed === 0 ? 0 : 1);
