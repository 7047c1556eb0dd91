// SPDX-License-Identifier: Apache-2.0
// The rows of docs/clients.md.

/** Feature id and what a reader sees. The order is that of the page. */
export const features = [
  ['models', '`/v1/models`'],
  ['plain', 'a whole answer, checked value by value'],
  ['stream', 'a streamed answer, equal to the whole one'],
  ['usage', 'token counts, whole and streamed, cached tokens among them'],
  ['reasoning', 'reasoning apart from the answer'],
  ['thinking_switch', 'thinking switched off and on'],
  ['history', 'a conversation of several turns, system messages among them'],
  ['seed', 'sampling with a seed, repeated'],
  ['stop', 'stop strings'],
  ['length', '`max_tokens` and what the client makes of a cut answer'],
  ['unicode', 'characters of several tokens, whole in a stream'],
  ['completions', '`/v1/completions`'],
  ['refusals', 'errors as the client\'s own error types'],
  ['wrong_key', 'a wrong API key'],
  ['abort', 'an aborted stream ends the work on the server'],
  ['tool_call', 'a tool call, whole'],
  ['tool_stream', 'a tool call, streamed'],
  ['tool_history', 'tool results sent back'],
  ['json_schema', 'an answer held to a JSON schema'],
  ['agent', 'the agent reads a file with its tool and answers'],
];
