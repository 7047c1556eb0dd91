// SPDX-License-Identifier: Apache-2.0
// Vercel's AI SDK with its provider for OpenAI-compatible endpoints.
import assert from 'node:assert/strict';
import { client_package, eventually, unicode_text, weather_arguments, weather_tool } from './support.mjs';

const ai = client_package('ai');
const { createOpenAICompatible } = client_package('@ai-sdk/openai-compatible');

export const name = '@ai-sdk/openai-compatible';

export function tests({ server, playback, key, model, docs }) {
  const provider_of = (baseURL, apiKey) => createOpenAICompatible({ name: 'qpn', baseURL, apiKey, includeUsage: true });
  const provider = provider_of(server.base, key);
  const played = provider_of(playback.base, 'any')('playback');
  const off = { qpn: { chat_template_kwargs: { enable_thinking: false } } };
  const quick = { model: provider(model), prompt: docs.quick.user, temperature: 0, maxOutputTokens: 512, maxRetries: 0, providerOptions: off };
  const thinking = { ...quick, prompt: docs.thinking.user, providerOptions: { qpn: { reasoningEffort: 'high' } } };
  const tools = { get_weather: ai.tool({ description: weather_tool.description, inputSchema: ai.jsonSchema(weather_tool.parameters) }) };
  const weather = { model: played, prompt: 'weather please', tools, maxRetries: 0 };

  return {
    async plain() {
      const reply = await ai.generateText(quick);
      assert.deepEqual(JSON.parse(reply.text), docs.quick.expected);
      assert.equal(reply.finishReason, 'stop');
    },
    async stream() {
      const whole = await ai.generateText(quick);
      const streamed = ai.streamText(quick);
      let text = '';
      for await (const piece of streamed.textStream) text += piece;
      assert.equal(text, whole.text);
      assert.equal(await streamed.finishReason, 'stop');
    },
    async usage() {
      const { usage: first } = await ai.generateText(quick);
      const streamed = ai.streamText(quick);
      await streamed.consumeStream();
      const second = await streamed.usage;
      assert.ok(first.inputTokens > 0 && first.outputTokens > 0);
      assert.equal(second.inputTokens, first.inputTokens);
      assert.equal(second.outputTokens, first.outputTokens);
      assert.ok(second.inputTokenDetails.cacheReadTokens > 0);
    },
    async reasoning() {
      const whole = await ai.generateText(thinking);
      assert.ok(whole.reasoningText.length > 0);
      assert.deepEqual(JSON.parse(whole.text), docs.thinking.expected);
      const streamed = ai.streamText(thinking);
      let reasoning = '';
      for await (const part of streamed.fullStream) if (part.type === 'reasoning-delta') reasoning += part.text;
      assert.equal(reasoning, whole.reasoningText);
    },
    async thinking_switch() {
      assert.equal((await ai.generateText(quick)).reasoningText, undefined);
      assert.ok((await ai.generateText(thinking)).reasoningText);
    },
    async history() {
      const messages = [{ role: 'user', content: docs.with_system.user }];
      const first = await ai.generateText({ ...quick, prompt: undefined, system: docs.with_system.system, messages });
      assert.deepEqual(JSON.parse(first.text), docs.with_system.expected);
      messages.push(...first.response.messages, { role: 'user', content: docs.quick.user });
      assert.ok((await ai.generateText({ ...quick, prompt: undefined, messages })).text);
    },
    async seed() {
      const text = async (seed) => (await ai.generateText({ ...quick, prompt: 'hello', temperature: 3, topP: 1, maxOutputTokens: 20, seed })).text;
      assert.equal(await text(7), await text(7));
      const texts = new Set(await Promise.all([1, 2, 3, 4].map(text)));
      assert.ok(texts.size > 1, 'seeds make a difference');
    },
    async stop() {
      const whole = (await ai.generateText(quick)).text;
      const stop = whole.slice(20, 24);
      assert.equal((await ai.generateText({ ...quick, stopSequences: [stop] })).text, whole.slice(0, whole.indexOf(stop)));
    },
    async length() {
      assert.equal((await ai.generateText({ ...quick, maxOutputTokens: 5 })).finishReason, 'length');
    },
    async unicode() {
      const streamed = ai.streamText({ model: played, prompt: 'unicode please', providerOptions: off });
      let text = '';
      for await (const piece of streamed.textStream) text += piece;
      assert.equal(text, unicode_text);
    },
    async completions() {
      const reply = await ai.generateText({ model: provider.completionModel(model), prompt: '{"invoice_id": "', maxOutputTokens: 12, temperature: 0 });
      assert.ok(reply.text);
    },
    async refusals() {
      const is = (status) => (problem) => ai.APICallError.isInstance(problem) && problem.statusCode === status && !problem.isRetryable;
      await assert.rejects(ai.generateText({ ...quick, maxOutputTokens: 10 ** 6 }), is(400));
      await assert.rejects(ai.generateText({ ...quick, model: provider('another') }), is(404));
    },
    async wrong_key() {
      const stranger = provider_of(server.base, 'wrong')(model);
      await assert.rejects(ai.generateText({ ...quick, model: stranger }), (problem) => problem.statusCode === 401);
    },
    async abort() {
      const cancelled = 'qwen38_requests_finished_total{finished_reason="cancelled"}';
      const before = (await server.metrics(key))[cancelled];
      const leave = new AbortController();
      const streamed = ai.streamText({ ...quick, maxOutputTokens: 7000, abortSignal: leave.signal, onError() {},
                                       providerOptions: { qpn: { ...off.qpn, ignore_eos: true, speculative: { k: 0 } } } });
      for await (const part of streamed.fullStream) {
        if (part.type === 'text-delta') leave.abort();
        if (part.type === 'abort') break;
      }
      await eventually(async () => (await server.metrics(key))[cancelled] === before + 1, 'the request is cancelled on the server');
    },
    async tool_call() {
      const reply = await ai.generateText(weather);
      assert.equal(reply.finishReason, 'tool-calls');
      assert.equal(reply.toolCalls.length, 1);
      assert.equal(reply.toolCalls[0].toolName, 'get_weather');
      assert.deepEqual(reply.toolCalls[0].input, weather_arguments);
    },
    async tool_stream() {
      const streamed = ai.streamText(weather);
      let input = '';
      for await (const part of streamed.fullStream) if (part.type === 'tool-input-delta') input += part.delta;
      assert.deepEqual(JSON.parse(input), weather_arguments);
      assert.deepEqual((await streamed.toolCalls)[0].input, weather_arguments);
    },
    async tool_history() {
      const executed = { get_weather: ai.tool({ ...tools.get_weather, execute: async () => 'it rains frogs' }) };
      const reply = await ai.generateText({ ...weather, tools: executed, stopWhen: ai.stepCountIs(2) });
      assert.equal(reply.steps.length, 2);
      assert.match(reply.text + reply.reasoningText, /Frogs, then\./);
    },
    async json_schema() {
      const schema = ai.jsonSchema({ type: 'object', properties: { answer: { enum: ['yes', 'no'] } }, required: ['answer'], additionalProperties: false });
      const structured = createOpenAICompatible({ name: 'qpn', baseURL: server.base, apiKey: key, supportsStructuredOutputs: true })(model);
      const { object } = await ai.generateObject({ ...quick, model: structured, schema });
      assert.ok(['yes', 'no'].includes(object.answer));
    },
  };
}
