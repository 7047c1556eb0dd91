// SPDX-License-Identifier: Apache-2.0
// The official client library.
import assert from 'node:assert/strict';
import { client_package, eventually, unicode_text, weather_arguments, weather_tool } from './support.mjs';

const openai = client_package('openai');
const OpenAI = openai.OpenAI;

export const name = 'openai';

export function tests({ server, playback, key, model, docs }) {
  const client = new OpenAI({ baseURL: server.base, apiKey: key, maxRetries: 0 });
  const played = new OpenAI({ baseURL: playback.base, apiKey: 'any', maxRetries: 0 });
  const user = (content) => ({ role: 'user', content });
  const no_thinking = { chat_template_kwargs: { enable_thinking: false } };
  const body = { model, temperature: 0, max_tokens: 512, messages: [user(docs.quick.user)], ...no_thinking };
  const collect = async (stream) => {
    const out = { text: '', reasoning: '', finish: null, usage: null };
    for await (const chunk of stream) {
      if (chunk.usage) out.usage = chunk.usage;
      for (const choice of chunk.choices) {
        out.text += choice.delta.content ?? '';
        out.reasoning += choice.delta.reasoning_content ?? '';
        out.finish = choice.finish_reason ?? out.finish;
      }
    }
    return out;
  };
  const weather = { model: 'playback', messages: [user('weather please')], tools: [{ type: 'function', function: weather_tool }] };

  return {
    async models() {
      const ids = [];
      for await (const one of client.models.list()) ids.push(one.id);
      assert.deepEqual(ids, [model]);
      assert.equal((await client.models.retrieve(model)).id, model);
    },
    async plain() {
      const reply = await client.chat.completions.create(body);
      assert.deepEqual(JSON.parse(reply.choices[0].message.content), docs.quick.expected);
      assert.equal(reply.choices[0].finish_reason, 'stop');
    },
    async stream() {
      const whole = await client.chat.completions.create(body);
      const streamed = await collect(await client.chat.completions.create({ ...body, stream: true }));
      assert.equal(streamed.text, whole.choices[0].message.content);
      assert.equal(streamed.finish, 'stop');
      const helper = client.chat.completions.stream(body);
      assert.equal(await helper.finalContent(), streamed.text);
    },
    async usage() {
      const first = (await client.chat.completions.create(body)).usage;
      const { usage } = await collect(await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
      assert.ok(first.prompt_tokens > 0 && first.completion_tokens > 0);
      assert.equal(usage.total_tokens, first.total_tokens);
      assert.ok(usage.prompt_tokens_details.cached_tokens > 0, 'the second prompt goes on from the first');
      assert.equal((await collect(await client.chat.completions.create({ ...body, stream: true }))).usage, null);
    },
    async reasoning() {
      const thinking = { ...body, messages: [user(docs.thinking.user)], reasoning_effort: 'high', chat_template_kwargs: {} };
      const whole = (await client.chat.completions.create(thinking));
      const message = whole.choices[0].message;
      assert.ok(message.reasoning_content.length > 0);
      assert.deepEqual(JSON.parse(message.content), docs.thinking.expected);
      assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 0);
      const streamed = await collect(await client.chat.completions.create({ ...thinking, stream: true }));
      assert.equal(streamed.reasoning, message.reasoning_content);
      assert.equal(streamed.text, message.content);
    },
    async thinking_switch() {
      for (const enable_thinking of [false, true]) {
        const reply = await client.chat.completions.create({ ...body, chat_template_kwargs: { enable_thinking } });
        assert.equal(Boolean(reply.choices[0].message.reasoning_content), enable_thinking);
      }
    },
    async history() {
      const messages = [{ role: 'system', content: docs.with_system.system }, user(docs.with_system.user)];
      const first = await client.chat.completions.create({ ...body, messages });
      assert.deepEqual(JSON.parse(first.choices[0].message.content), docs.with_system.expected);
      messages.push(first.choices[0].message, { role: 'developer', content: 'Again.' }, user(docs.quick.user));
      const second = await client.chat.completions.create({ ...body, messages });
      assert.ok(second.choices[0].message.content);
      assert.ok(second.usage.prompt_tokens > first.usage.prompt_tokens);
    },
    async seed() {
      const sampled = { ...body, messages: [user('hello')], temperature: 3, top_p: 1, max_tokens: 20 };
      const text = async (seed) => (await client.chat.completions.create({ ...sampled, seed })).choices[0].message.content;
      assert.equal(await text(7), await text(7));
      const texts = new Set(await Promise.all([1, 2, 3, 4].map(text)));
      assert.ok(texts.size > 1, 'seeds make a difference');
    },
    async stop() {
      const whole = (await client.chat.completions.create(body)).choices[0].message.content;
      const stop = whole.slice(20, 24);
      const cut = await client.chat.completions.create({ ...body, stop: [stop, 'never there'] });
      assert.equal(cut.choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
      assert.equal(cut.choices[0].finish_reason, 'stop');
    },
    async length() {
      for (const limit of [{ max_tokens: 5 }, { max_tokens: undefined, max_completion_tokens: 5 }]) {
        const reply = await client.chat.completions.create({ ...body, ...limit });
        assert.equal(reply.choices[0].finish_reason, 'length');
        assert.equal(reply.usage.completion_tokens, 5);
      }
    },
    async unicode() {
      const asked = { model: 'playback', messages: [user('unicode please')], ...no_thinking };
      assert.equal((await played.chat.completions.create(asked)).choices[0].message.content, unicode_text);
      const pieces = [];
      for await (const chunk of await played.chat.completions.create({ ...asked, stream: true })) {
        pieces.push(chunk.choices[0].delta.content ?? '');
      }
      assert.equal(pieces.join(''), unicode_text);
      assert.ok(pieces.length > 10 && pieces.every((piece) => piece.isWellFormed() && !piece.includes('\ufffd')));
    },
    async completions() {
      const asked = { model, prompt: '{"invoice_id": "', max_tokens: 12, temperature: 0 };
      const whole = await client.completions.create(asked);
      assert.ok(whole.choices[0].text);
      let text = '';
      for await (const chunk of await client.completions.create({ ...asked, stream: true })) text += chunk.choices[0]?.text ?? '';
      assert.equal(text, whole.choices[0].text);
    },
    async refusals() {
      const is = (type, param, code) => (problem) => problem instanceof type && problem.param === param && problem.code === code;
      await assert.rejects(client.chat.completions.create({ ...body, messages: [] }), is(openai.BadRequestError, 'messages', null));
      await assert.rejects(client.chat.completions.create({ ...body, n: 2 }), is(openai.BadRequestError, 'n', 'unsupported'));
      await assert.rejects(client.chat.completions.create({ ...body, model: 'another' }), is(openai.NotFoundError, 'model', 'model_not_found'));
      await assert.rejects(client.chat.completions.create({ ...body, max_tokens: 10 ** 6, stream: true }),
                           is(openai.BadRequestError, null, 'context_length_exceeded'));
    },
    async wrong_key() {
      const stranger = new OpenAI({ baseURL: server.base, apiKey: 'wrong', maxRetries: 0 });
      await assert.rejects(stranger.models.list(), openai.AuthenticationError);
      await assert.rejects(stranger.chat.completions.create(body), openai.AuthenticationError);
    },
    async abort() {
      const cancelled = 'qwen38_requests_finished_total{finished_reason="cancelled"}';
      const before = (await server.metrics(key))[cancelled];
      const stream = await client.chat.completions.create(
        { ...body, stream: true, max_tokens: 7000, ignore_eos: true, speculative: { k: 0 } });
      for await (const chunk of stream) {
        if (chunk.choices[0].delta.content) break;  // leaving the loop aborts the request
      }
      await eventually(async () => {
        const now = await server.metrics(key);
        return now[cancelled] === before + 1 && now.qwen38_num_requests_running === 0;
      }, 'the request is cancelled on the server');
    },
    async tool_call() {
      const reply = await played.chat.completions.create(weather);
      const { message, finish_reason } = reply.choices[0];
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.tool_calls.length, 1);
      assert.equal(message.tool_calls[0].type, 'function');
      assert.equal(message.tool_calls[0].function.name, 'get_weather');
      assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), weather_arguments);
      assert.equal(message.reasoning_content.trim(), 'I look it up.');
    },
    async tool_stream() {
      const helper = played.chat.completions.stream(weather);
      const deltas = [];
      helper.on('tool_calls.function.arguments.delta', (delta) => deltas.push(delta.arguments_delta));
      const { choices: [{ message, finish_reason }] } = await helper.finalChatCompletion();
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.tool_calls[0].function.name, 'get_weather');
      assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), weather_arguments);
      assert.deepEqual(JSON.parse(deltas.join('')), weather_arguments);
    },
    async tool_history() {
      const first = (await played.chat.completions.create(weather)).choices[0].message;
      const messages = [...weather.messages, first,
                        { role: 'tool', tool_call_id: first.tool_calls[0].id, content: 'it rains frogs' }];
      const reply = await played.chat.completions.create({ ...weather, messages, ...no_thinking });
      assert.equal(reply.choices[0].message.content, 'Frogs, then.');
      assert.equal(reply.choices[0].finish_reason, 'stop');
    },
    async json_schema() {
      const schema = { type: 'object', properties: { answer: { enum: ['yes', 'no'] } }, required: ['answer'], additionalProperties: false };
      const reply = await client.chat.completions.create(
        { ...body, response_format: { type: 'json_schema', json_schema: { name: 'verdict', schema, strict: true } } });
      assert.ok(['yes', 'no'].includes(JSON.parse(reply.choices[0].message.content).answer));
    },
  };
}
