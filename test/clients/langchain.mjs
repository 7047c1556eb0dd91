// SPDX-License-Identifier: Apache-2.0
// LangChain's chat model for OpenAI endpoints.
import assert from 'node:assert/strict';
import { client_package, eventually, unicode_text, weather_arguments, weather_tool } from './support.mjs';

const { ChatOpenAI, OpenAI } = client_package('@langchain/openai');
const { AIMessage, HumanMessage, SystemMessage, ToolMessage } = client_package('@langchain/core/messages');

export const name = '@langchain/openai';

export function tests({ server, playback, key, model, docs }) {
  const off = { chat_template_kwargs: { enable_thinking: false } };
  const make = (fields = {}, extra = off) => new ChatOpenAI({
    model, apiKey: key, temperature: 0, maxTokens: 512, maxRetries: 0, useResponsesApi: false,
    configuration: { baseURL: server.base }, modelKwargs: extra, ...fields,
  });
  const played = (extra = off) => make({ model: 'playback', configuration: { baseURL: playback.base } }, extra);
  const tool = { type: 'function', function: weather_tool };

  return {
    async plain() {
      const reply = await make().invoke(docs.quick.user);
      assert.deepEqual(JSON.parse(reply.content), docs.quick.expected);
      assert.equal(reply.response_metadata.finish_reason, 'stop');
    },
    async stream() {
      const whole = await make().invoke(docs.quick.user);
      let text = '';
      for await (const chunk of await make().stream(docs.quick.user)) text += chunk.content;
      assert.equal(text, whole.content);
    },
    async usage() {
      const whole = (await make().invoke(docs.quick.user)).usage_metadata;
      let streamed;
      for await (const chunk of await make({ streamUsage: true }).stream(docs.quick.user)) streamed = chunk.usage_metadata ?? streamed;
      assert.ok(whole.input_tokens > 0 && whole.output_tokens > 0);
      assert.equal(streamed.total_tokens, whole.total_tokens);
      assert.ok(streamed.input_token_details.cache_read > 0);
    },
    async reasoning() {
      const reply = await make({}, { reasoning_effort: 'high' }).invoke(docs.thinking.user);
      assert.deepEqual(JSON.parse(reply.content), docs.thinking.expected);
      return 'The library drops the reasoning; what it returns is the answer alone.';
    },
    async thinking_switch() {
      const tokens = async (extra) => (await make({}, extra).invoke(docs.quick.user)).usage_metadata.output_token_details.reasoning;
      assert.ok(!(await tokens(off)));
      assert.ok(await tokens({ chat_template_kwargs: { enable_thinking: true } }) > 0);
    },
    async history() {
      const messages = [new SystemMessage(docs.with_system.system), new HumanMessage(docs.with_system.user)];
      const first = await make().invoke(messages);
      assert.deepEqual(JSON.parse(first.content), docs.with_system.expected);
      assert.ok((await make().invoke([...messages, new AIMessage(first.content), new HumanMessage(docs.quick.user)])).content);
    },
    async seed() {
      const text = async (seed) => (await make({ temperature: 3, topP: 1, maxTokens: 20 }, { ...off, seed }).invoke('hello')).content;
      assert.equal(await text(7), await text(7));
      const texts = new Set(await Promise.all([1, 2, 3, 4].map(text)));
      assert.ok(texts.size > 1, 'seeds make a difference');
    },
    async stop() {
      const whole = (await make().invoke(docs.quick.user)).content;
      const stop = whole.slice(20, 24);
      assert.equal((await make().invoke(docs.quick.user, { stop: [stop] })).content, whole.slice(0, whole.indexOf(stop)));
    },
    async length() {
      assert.equal((await make({ maxTokens: 5 }).invoke(docs.quick.user)).response_metadata.finish_reason, 'length');
    },
    async unicode() {
      let text = '';
      for await (const chunk of await played().stream('unicode please')) text += chunk.content;
      assert.equal(text, unicode_text);
    },
    async completions() {
      const text = new OpenAI({ model, apiKey: key, temperature: 0, maxTokens: 12, maxRetries: 0, configuration: { baseURL: server.base } });
      assert.ok(await text.invoke('{"invoice_id": "'));
    },
    async refusals() {
      await assert.rejects(make({ maxTokens: 10 ** 6 }).invoke('x'), (problem) => problem.status === 400 || problem.name === 'ContextOverflowError');
      await assert.rejects(make({ model: 'another' }).invoke('x'), (problem) => problem.status === 404);
    },
    async wrong_key() {
      await assert.rejects(make({ apiKey: 'wrong' }).invoke('x'), (problem) => problem.status === 401);
    },
    async abort() {
      const cancelled = 'qwen38_requests_finished_total{finished_reason="cancelled"}';
      const before = (await server.metrics(key))[cancelled];
      const leave = new AbortController();
      const endless = make({ maxTokens: 7000 }, { ...off, ignore_eos: true, speculative: { k: 0 } });
      await assert.rejects(async () => {
        for await (const chunk of await endless.stream(docs.quick.user, { signal: leave.signal })) if (chunk.content) leave.abort();
      });
      await eventually(async () => (await server.metrics(key))[cancelled] === before + 1, 'the request is cancelled on the server');
    },
    async tool_call() {
      const reply = await played({}).bindTools([tool]).invoke('weather please');
      assert.equal(reply.tool_calls.length, 1);
      assert.equal(reply.tool_calls[0].name, 'get_weather');
      assert.deepEqual(reply.tool_calls[0].args, weather_arguments);
      assert.equal(reply.response_metadata.finish_reason, 'tool_calls');
    },
    async tool_stream() {
      let whole;
      for await (const chunk of await played({}).bindTools([tool]).stream('weather please')) whole = whole ? whole.concat(chunk) : chunk;
      assert.deepEqual(whole.tool_calls[0].args, weather_arguments);
    },
    async tool_history() {
      const asked = new HumanMessage('weather please');
      const first = await played({}).bindTools([tool]).invoke([asked]);
      const result = new ToolMessage({ content: 'it rains frogs', tool_call_id: first.tool_calls[0].id });
      const reply = await played().bindTools([tool]).invoke([asked, first, result]);
      assert.equal(reply.content, 'Frogs, then.');
    },
    async json_schema() {
      const schema = { title: 'verdict', type: 'object', properties: { answer: { enum: ['yes', 'no'] } }, required: ['answer'], additionalProperties: false };
      const reply = await make().withStructuredOutput(schema, { method: 'jsonSchema', strict: true }).invoke(docs.quick.user);
      assert.ok(['yes', 'no'].includes(reply.answer));
    },
  };
}
