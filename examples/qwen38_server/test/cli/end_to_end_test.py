# SPDX-License-Identifier: Apache-2.0
"""The built server, the demo checkpoint, real sockets: what a user does, checked from outside.

usage: end_to_end_test.py SERVER_BINARY MODEL_DIRECTORY [unittest arguments]
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SERVER, MODEL = sys.argv[1:3]


def heldout(count):
    with open(os.path.join(MODEL, "eval", "heldout.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for _, line in zip(range(count), lines)]


def chat_body(document, **more):
    messages = [{"role": "user", "content": document["user"]}]
    if document["system"] is not None:
        messages.insert(0, {"role": "system", "content": document["system"]})
    body = {
        "messages": messages,
        "temperature": 0,
        "max_tokens": 512,
        "chat_template_kwargs": {"enable_thinking": document["enable_thinking"]},
    }
    if document["reasoning_effort"] is not None:
        body["reasoning_effort"] = document["reasoning_effort"]
    body.update(more)
    return body


class Server:
    """A server process, ready to answer unless `loading`; then its port is read from what it logs."""

    def __init__(self, *flags, model=MODEL, log=subprocess.DEVNULL, loading=False, environment=None):
        command = [SERVER, "serve", "--model", model, "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE if loading else log,
                                        env={**os.environ, **(environment or {})}, text=True)
        self.key = None
        if loading:
            line = self.process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+) answers 503", line)
            assert found, f"unexpected first line {line!r}"
            self.port = int(found.group(1))
        else:
            self.port = self.wait_until_ready()

    def wait_until_ready(self):
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        assert found, f"unexpected first line {line!r}"
        return int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        self.terminate()
        return self.process.wait(timeout=30)

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            payload = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            connection.request(method, path, payload, headers)
            reply = connection.getresponse()
            return reply.status, reply.read().decode("utf-8")
        finally:
            connection.close()

    def post(self, path, body):
        status, text = self.request("POST", path, body)
        assert status == 200, f"{status}: {text}"
        return json.loads(text)

    def chat(self, body):
        return self.post("/v1/chat/completions", body)

    def stream(self, path, body):
        """The parsed frames of a stream, [DONE] checked and left out."""
        status, text = self.request("POST", path, {**body, "stream": True})
        assert status == 200, f"{status}: {text}"
        frames = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        assert all(frame.startswith("data: ") for frame in frames), text
        assert frames[-1] == "data: [DONE]", frames[-1]
        return [json.loads(frame[len("data: "):]) for frame in frames[:-1]]


class OnOneServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--lanes", "4")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.server.__exit__()
        assert code == 0, f"exit code {code} after SIGTERM"

    def test_documents_become_their_json(self):
        documents = heldout(12)
        exact = 0
        for document in documents:
            reply = self.server.chat(chat_body(document, speculative={"k": 7}))
            message = reply["choices"][0]["message"]
            self.assertEqual(reply["choices"][0]["finish_reason"], "stop")
            self.assertEqual(bool(message.get("reasoning_content")), document["enable_thinking"])
            try:
                exact += json.loads(message["content"]) == document["expected"]
            except json.JSONDecodeError:
                pass
        # The committed weights get all of these: see their model card.
        self.assertEqual(exact, len(documents), f"{exact} of {len(documents)} exact")

    def test_every_draft_depth_gives_the_same_text_greedy_and_sampled(self):
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 7},
                         {"temperature": 1.2, "min_p": 0.02, "presence_penalty": 0.5, "seed": 11}):
            for document in heldout(2):
                texts = set()
                for k in (0, 1, 2, 3, 7, 15, "auto"):
                    reply = self.server.chat(chat_body(document, max_tokens=160, speculative={"k": k}, **sampling))
                    message = reply["choices"][0]["message"]
                    texts.add((message.get("reasoning_content"), message["content"],
                               reply["usage"]["completion_tokens"]))
                    self.assertEqual(reply["speculative"]["k"], k)
                self.assertEqual(len(texts), 1, f"{document['id']} {sampling}: {texts}")

    def test_a_chosen_depth_is_told_round_by_round(self):
        reply = self.server.chat(chat_body(heldout(1)[0], speculative={"k": "auto"}))
        speculation = reply["speculative"]
        self.assertEqual(list(speculation["rounds_at"]), ["0", "1", "3", "7", "15"])
        self.assertEqual(sum(speculation["rounds_at"].values()), speculation["rounds"])
        page = samples(self.server.request("GET", "/metrics")[1])
        for depth, rounds in speculation["rounds_at"].items():
            self.assertGreaterEqual(page[f'qwen38_spec_decode_chosen_depth_total{{k="{depth}"}}'], rounds)

    def test_speculation_is_real(self):
        document = heldout(1)[0]
        reply = self.server.chat(chat_body(document, speculative={"k": 7}))
        speculation = reply["speculative"]
        self.assertGreater(speculation["tau"], 2.0)
        self.assertEqual(len(speculation["accepted_at"]), 7)
        self.assertLess(speculation["rounds"], reply["usage"]["completion_tokens"])
        self.assertEqual(self.server.chat(chat_body(document, speculative={"k": 0}))["speculative"]["accepted"], 0)

    def test_a_stream_carries_the_same_text_as_a_plain_reply(self):
        for document in heldout(4):
            plain = self.server.chat(chat_body(document))["choices"][0]["message"]
            chunks = self.server.stream("/v1/chat/completions", chat_body(document))
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
            self.assertEqual("".join(delta.get("content") or "" for delta in deltas), plain["content"])
            self.assertEqual("".join(delta.get("reasoning_content") or "" for delta in deltas),
                             plain.get("reasoning_content") or "")
            self.assertEqual(deltas[0].get("role"), "assistant")
            self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)

    def test_a_schema_holds_and_no_draft_depth_changes_the_text(self):
        schema = {"type": "object", "properties": {"kind": {"enum": ["bill", "other"]}, "n": {"type": "integer"},
                                                   "tags": {"type": "array", "items": {"type": "string", "maxLength": 8},
                                                            "minItems": 1, "maxItems": 2}},
                  "required": ["kind", "n", "tags"], "additionalProperties": False}
        asked = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
        for document in heldout(2):  # the first without thinking, the second with it
            answers = set()
            for k in (0, 3, 7):
                choice = self.server.chat(chat_body(document, response_format=asked, speculative={"k": k}))["choices"][0]
                message = choice["message"]
                self.assertEqual(choice["finish_reason"], "stop")
                self.assertEqual(bool(message.get("reasoning_content")), document["enable_thinking"])
                answers.add((message.get("reasoning_content"), message["content"]))
            self.assertEqual(len(answers), 1, answers)
            value = json.loads(answers.pop()[1])
            self.assertIn(value["kind"], ("bill", "other"))
            self.assertIsInstance(value["n"], int)
            self.assertTrue(1 <= len(value["tags"]) <= 2 and all(len(tag) <= 8 for tag in value["tags"]), value)
        status, text = self.server.request("POST", "/v1/chat/completions", chat_body(
            document, response_format={"type": "json_schema", "json_schema": {"schema": {"minimum": 3}}}))
        self.assertEqual(status, 400, text)
        self.assertIn("`minimum`", json.loads(text)["error"]["message"])

    def test_a_required_call_arrives_as_a_call_streamed_and_plain(self):
        tool = {"type": "function", "function": {"name": "record", "strict": True, "parameters": {
            "type": "object", "properties": {"count": {"type": "integer"}, "unit": {"enum": ["a", "b"]}},
            "required": ["count", "unit"], "additionalProperties": False}}}
        body = chat_body(heldout(1)[0], tools=[tool], tool_choice="required", parallel_tool_calls=False)
        for k in (0, 7):
            body["speculative"] = {"k": k}
            plain = self.server.chat(body)["choices"][0]
            self.assertEqual(plain["finish_reason"], "tool_calls")
            call, = plain["message"]["tool_calls"]
            self.assertEqual(call["function"]["name"], "record")
            arguments = json.loads(call["function"]["arguments"])
            self.assertIsInstance(arguments["count"], int)
            self.assertIn(arguments["unit"], ("a", "b"))
            chunks = [chunk["choices"][0] for chunk in self.server.stream("/v1/chat/completions", body)]
            parts = [part for chunk in chunks for part in chunk["delta"].get("tool_calls", [])]
            self.assertEqual("".join(part["function"]["arguments"] for part in parts), call["function"]["arguments"])
            self.assertEqual([part["function"]["name"] for part in parts if "id" in part], ["record"])
            self.assertEqual(chunks[-1]["finish_reason"], "tool_calls")

    def test_log_probabilities_and_budgets_do_not_depend_on_the_depth(self):
        document = heldout(2)[1]
        self.assertTrue(document["enable_thinking"])
        seen = []
        for k in (0, 3, 7):
            reply = self.server.chat(chat_body(document, logprobs=True, top_logprobs=2, thinking_budget=6,
                                               speculative={"k": k}))
            choice = reply["choices"][0]
            self.assertEqual(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 7)  # with </think>
            tokens = choice["logprobs"]["content"]
            self.assertEqual(bytes(byte for token in tokens for byte in token["bytes"]).decode().strip(),
                             choice["message"]["content"])
            self.assertTrue(all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 2 for token in tokens))
            seen.append(tokens)
        self.assertEqual(seen[1], seen[0])
        self.assertEqual(seen[2], seen[0])

    def test_text_completions_stop_where_they_are_told(self):
        body = {"prompt": '{"invoice_id": "', "max_tokens": 40, "temperature": 0}
        whole = self.server.post("/v1/completions", body)["choices"][0]["text"]
        self.assertTrue(whole)
        stop = whole[len(whole) // 2:][:3]
        cut = self.server.post("/v1/completions", {**body, "stop": stop})["choices"][0]
        self.assertEqual(cut["text"], whole[:whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")
        streamed = self.server.stream("/v1/completions", {**body, "stop": [stop]})
        self.assertEqual("".join(c["choices"][0]["text"] for c in streamed if c["choices"]), cut["text"])

    def test_health_models_and_errors(self):
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        models = json.loads(self.server.request("GET", "/v1/models")[1])
        self.assertEqual(models["data"][0]["id"], os.path.basename(os.path.realpath(MODEL)))
        for body, status in (({"messages": []}, 400), ({"messages": 3}, 400),
                             (chat_body(heldout(1)[0], max_tokens=10**7), 400),
                             (chat_body(heldout(1)[0], speculative={"k": 16}), 400),
                             (chat_body(heldout(1)[0], model="no-such-model"), 404)):
            got, text = self.server.request("POST", "/v1/chat/completions", body)
            self.assertEqual(got, status, text)
            self.assertTrue(json.loads(text)["error"]["message"])


class PrefixCache(unittest.TestCase):
    def test_a_dialogue_goes_on_from_the_turn_before_and_its_text_is_that_of_a_cold_server(self):
        documents = [document for document in heldout(6) if not document["enable_thinking"]][:2]
        with Server("--prefix-cache-mib", "64") as warm, Server("--prefix-cache-mib", "0") as cold:
            for k in (0, 7):
                for document in documents:
                    body = chat_body(document, max_tokens=96, speculative={"k": k})
                    before = 0
                    for turn in range(3):
                        reply = warm.chat(body)
                        expected = cold.chat(body)
                        self.assertEqual(reply["choices"], expected["choices"])
                        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
                        self.assertEqual(cached % 64, 0)
                        self.assertGreaterEqual(cached, before - before % 64 - 64 if turn else 0)
                        if turn > 0:
                            self.assertGreater(cached, 0)
                        self.assertEqual(reply["timings"]["cache_n"], cached)
                        self.assertEqual(expected["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
                        before = reply["usage"]["prompt_tokens"]
                        body["messages"] += [{"role": "assistant", "content": reply["choices"][0]["message"]["content"]},
                                             {"role": "user", "content": document["user"]}]


class Loading(unittest.TestCase):
    """A checkpoint whose chat template is a pipe: the load goes on once something is written into it."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        for name in os.listdir(MODEL):
            os.symlink(os.path.join(os.path.realpath(MODEL), name), os.path.join(self.directory.name, name))
        self.template = os.path.join(self.directory.name, "chat_template.jinja")
        os.mkfifo(self.template)

    def feed(self, text):
        with open(self.template, "w", encoding="utf-8") as pipe:
            pipe.write(text)

    def test_health_says_loading_until_the_model_is_there(self):
        with Server("--chat-template", "qwen3.8", model=self.directory.name, loading=True) as server:
            status, text = server.request("GET", "/health")
            self.assertEqual((status, json.loads(text)), (503, {"status": "loading"}))
            for method, path, body in (("POST", "/v1/chat/completions", chat_body(heldout(1)[0])),
                                       ("POST", "/v1/completions", {"prompt": "x"}), ("GET", "/v1/models", None)):
                status, text = server.request(method, path, body)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "loading"), path)
            self.feed("{{ whatever }}")
            self.assertEqual(server.wait_until_ready(), server.port)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
            self.assertEqual(server.stop(), 0)

    def test_a_load_that_fails_ends_the_process_with_its_sentence(self):
        with Server(model=self.directory.name, loading=True) as server:
            self.assertEqual(server.request("GET", "/health")[0], 503)
            self.feed("{{ no template that is known }}")
            said, log = server.process.communicate(timeout=60)
            self.assertEqual(server.process.returncode, 2)
            self.assertEqual(said, "")
            self.assertEqual(len([line for line in log.splitlines() if line.startswith("qwen38_server: ")]), 1, log)

    def test_sigterm_ends_a_load_at_once(self):
        with Server(model=self.directory.name, loading=True) as server:
            self.assertEqual(server.request("GET", "/health")[0], 503)
            self.assertEqual(server.stop(), 0)


class Ending(unittest.TestCase):
    def begin_stream(self, server, max_tokens):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": max_tokens, "speculative": {"k": 0}}))
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200)
        self.assertTrue(reply.readline().startswith(b"data: "))
        return reply

    def wait_until_draining(self, server):
        while True:
            status, text = server.request("GET", "/health")
            if status == 503:
                self.assertEqual(json.loads(text)["status"], "draining")
                return

    def test_sigterm_lets_answers_finish(self):
        with Server("--drain-timeout", "600") as server:  # a loaded machine takes longer than the default
            stream = self.begin_stream(server, 1000)
            server.terminate()
            self.wait_until_draining(server)
            status, text = server.request("POST", "/v1/completions", {"prompt": "x"})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "unavailable"))
            rest = stream.read().decode("utf-8")
            self.assertTrue(rest.endswith("data: [DONE]\n\n"), rest[-300:])
            self.assertIn('"finish_reason":"length"', rest)
            self.assertEqual(server.process.wait(timeout=30), 0)

    def expect_cut(self, server, stream):
        rest = stream.read().decode("utf-8")
        last = rest.rstrip().rsplit("\n\n", 1)[-1]
        self.assertEqual(json.loads(last.removeprefix("data: "))["error"]["code"], "cancelled", last)
        self.assertNotIn("[DONE]", rest)
        self.assertEqual(server.process.wait(timeout=30), 0)

    def test_the_drain_timeout_ends_answers_with_an_error(self):
        with Server("--drain-timeout", "1") as server:
            stream = self.begin_stream(server, 8000)
            server.terminate()
            self.expect_cut(server, stream)

    def test_a_second_sigterm_ends_answers_at_once(self):
        with Server("--drain-timeout", "3600") as server:
            stream = self.begin_stream(server, 8000)
            server.terminate()
            self.wait_until_draining(server)
            server.terminate()
            self.expect_cut(server, stream)


class Secrets(unittest.TestCase):
    def test_w19_neither_key_nor_prompt_is_in_a_log_or_another_reply(self):
        key, prompt = "sk-very-secret-key", "a-very-secret-prompt"
        seen = []
        with tempfile.TemporaryFile("w+") as log, tempfile.NamedTemporaryFile("r") as requests:
            with Server("--request-log", requests.name, log=log, environment={"QWEN38_API_KEY": key}) as server:
                server.key = key
                server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
                for method, path, body in (("POST", "/v1/completions", {"prompt": prompt, "n": 2}),
                                           ("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 10**6}),
                                           ("POST", "/v1/chat/completions", {"messages": [{"role": prompt}]}),
                                           ("POST", "/v1/completions", {"prompt": "x", "model": prompt}),
                                           ("GET", "/health", None), ("GET", "/health?deep=1", None),
                                           ("GET", "/v1/models", None), ("GET", "/metrics", None),
                                           ("GET", "/props", None), ("GET", "/version", None),
                                           ("POST", "/tokenize", {"prompt": [], "model": prompt})):
                    seen.append(server.request(method, path, body)[1])
                server.key = "sk-wrong"
                status, text = server.request("GET", "/v1/models")
                self.assertEqual(status, 401)
                seen.append(text)
                self.assertEqual(server.stop(), 0)
                seen.append(server.process.stdout.read())
            seen.append(requests.read())
            self.assertEqual(len(seen[-1].splitlines()), 5)
            log.seek(0)
            seen.append(log.read())
        self.assertIn("stopped", seen[-1])
        for text in seen:
            self.assertNotIn(key, text)
            self.assertNotIn(prompt, text)


def samples(page):
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in page.splitlines() if line and not line.startswith("#")}


class Traces(unittest.TestCase):
    """Metrics and request log against what the replies themselves say."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = os.path.join(self.directory.name, "requests.jsonl")

    def lines(self, path=None):
        with open(path or self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def wait_for_lines(self, count):
        deadline = time.monotonic() + 30
        while len(self.lines()) < count:
            self.assertLess(time.monotonic(), deadline, f"{self.lines()}")
            time.sleep(0.02)
        return self.lines()

    def test_metrics_and_log_add_up_to_what_the_replies_say(self):
        with Server("--request-log", self.path, "--lanes", "2") as server:
            replies = []
            for document in heldout(3):
                body = chat_body(document, speculative={"k": 7})
                replies += [server.chat(body), server.chat(body)]
            self.assertEqual(server.request("POST", "/v1/chat/completions", {"messages": []})[0], 400)
            page = samples(server.request("GET", "/metrics")[1])
            logged = self.wait_for_lines(len(replies) + 1)
            self.assertEqual(server.stop(), 0)

        def total(read):
            return sum(read(reply) for reply in replies)

        self.assertEqual(page["qwen38_prompt_tokens_total"], total(lambda r: r["usage"]["prompt_tokens"]))
        self.assertEqual(page["qwen38_generation_tokens_total"], total(lambda r: r["usage"]["completion_tokens"]))
        cached = total(lambda r: r["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertGreater(cached, 0)
        self.assertEqual(page["qwen38_prefix_cache_hits_total"], cached)
        self.assertEqual(page["qwen38_spec_decode_num_drafts_total"], total(lambda r: r["speculative"]["rounds"]))
        self.assertEqual(page["qwen38_spec_decode_num_draft_tokens_total"], total(lambda r: r["speculative"]["drafted"]))
        for place in range(7):
            self.assertEqual(page[f'qwen38_spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}'],
                             total(lambda r: r["speculative"]["accepted_at"][place]))
        self.assertEqual(page['qwen38_requests_finished_total{finished_reason="stop"}'], len(replies))
        self.assertEqual(page['qwen38_requests_refused_total{status="400"}'], 1)
        self.assertEqual(page["qwen38_time_to_first_token_seconds_count"], len(replies))
        self.assertAlmostEqual(page["qwen38_request_decode_time_seconds_sum"],
                               total(lambda r: r["timings"]["predicted_ms"]) / 1000, delta=0.01)
        for line, reply in zip(logged, replies):
            self.assertEqual("chatcmpl-" + line["id"], reply["id"])
            self.assertEqual(line["completion_tokens"], reply["usage"]["completion_tokens"])
            self.assertEqual(line["cached_tokens"], reply["usage"]["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(line["accepted_at"], reply["speculative"]["accepted_at"])
            self.assertEqual(line["temperature"], 0)
            self.assertLessEqual(line["ttft_ms"], line["latency_ms"])
        self.assertEqual((logged[-1]["status"], logged[-1]["finish_reason"]), (400, "refused"))

    def test_sighup_opens_the_log_again(self):
        with Server("--request-log", self.path) as server:
            server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
            self.wait_for_lines(1)
            moved = self.path + ".1"
            os.rename(self.path, moved)
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
            deadline = time.monotonic() + 30
            while not os.path.exists(self.path) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(self.wait_for_lines(1)[0]["completion_tokens"], 2)
            self.assertEqual([line["completion_tokens"] for line in self.lines(moved)], [1])
            self.assertEqual(server.stop(), 0)

    def test_a_full_disk_ends_no_request_and_is_counted_and_said(self):
        with tempfile.TemporaryFile("w+") as log:
            with Server("--request-log", "/dev/full", log=log) as server:
                for _ in range(3):
                    server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
                deadline = time.monotonic() + 30
                page = {}
                while page.get("qwen38_request_log_lost_total", 0) < 3 and time.monotonic() < deadline:
                    page = samples(server.request("GET", "/metrics")[1])
                self.assertEqual(page["qwen38_request_log_lost_total"], 3)
                self.assertEqual(page["qwen38_request_log_lines_total"], 0)
                self.assertEqual(server.stop(), 0)
            log.seek(0)
            self.assertEqual(log.read().count("takes no lines"), 1)


class Chat(unittest.TestCase):
    def talk(self, lines, *flags):
        done = subprocess.run([SERVER, "chat", "--model", MODEL, "--temperature", "0", *flags],
                              input="".join(line + "\n" for line in lines),
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def messages(self, count):
        """Documents without a system message, and each as the lines of one message."""
        found = [document for document in heldout(200)
                 if document["system"] is None and not document["enable_thinking"]][:count]
        return found, [document["user"].replace("\n", "\\\n") for document in found]

    def test_answers_come_in_order_and_the_pipes_end_is_the_end(self):
        documents, lines = self.messages(2)
        said = self.talk([lines[0], "/reset", "", lines[1]], "--no-thinking")
        self.assertEqual([json.loads(line) for line in said.splitlines()],
                         [document["expected"] for document in documents])
        self.assertNotIn("\033", said)

    def test_the_history_is_sent_and_reset_forgets_it(self):
        documents, lines = self.messages(1)
        with Server("--lanes", "1") as server:
            body = {"messages": [{"role": "user", "content": documents[0]["user"]}], "temperature": 0}
            first = server.chat(body)["choices"][0]["message"]
            body["messages"] += [first, {"role": "user", "content": "and again"}]
            second = server.chat(body)["choices"][0]["message"]
            self.assertEqual(server.stop(), 0)
        self.assertTrue(first["reasoning_content"])
        script = [lines[0], "and again", "/reset", lines[0], "/quit", lines[0]]
        self.assertEqual(self.talk(script), "".join(
            message["reasoning_content"] + "\n" + message["content"] + "\n" for message in (first, second, first)))
        self.assertEqual(self.talk(script, "--hide-reasoning"), "".join(
            message["content"] + "\n" for message in (first, second, first)))

    def test_a_message_beyond_the_context_is_said_and_leaves_no_trace(self):
        documents, lines = self.messages(1)
        said = self.talk(["long " * 4000, lines[0]], "--no-thinking", "--context", "1024").splitlines()
        self.assertIn("the context holds 1024 tokens", said[0])
        self.assertEqual(json.loads(said[1]), documents[0]["expected"])

    def test_ctrl_c_ends_an_answer_but_not_the_chat(self):
        document, line = (found[0] for found in self.messages(1))
        items = "\\\n".join(f"at {i}.50; {i % 9 + 1}; candle {i}:" for i in range(1, 20))  # an answer of some 200 tokens
        long_line = "Reformat the following document into JSON. JSON only.\\\nITEMS\\\n" + items
        with subprocess.Popen([SERVER, "chat", "--model", MODEL, "--temperature", "0", "--no-thinking", "--k", "0"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdin.write(f"{long_line}\n".encode())
            process.stdin.flush()
            process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(f"{line}\n/quit\n".encode(), timeout=300)
            self.assertEqual(process.returncode, 0)
        cut, rest = said.decode("utf-8").split("[cancelled]\n")
        self.assertTrue(cut)
        self.assertEqual(json.loads(rest), document["expected"], "the message that was cancelled is forgotten")


class Starting(unittest.TestCase):
    def fails(self, *arguments):
        done = subprocess.run([SERVER, *arguments], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_a_missing_checkpoint_is_one_sentence(self):
        message = self.fails("serve", "--model", "no/such/directory", "--port", "0")
        said = [line for line in message.splitlines() if line.startswith("qwen38_server: ")]
        self.assertEqual(len(said), 1, message)
        self.assertIn("no/such/directory", said[0])
        self.assertNotIn("listening on", message)

    def test_a_taken_port_is_one_sentence(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            message = self.fails("serve", "--model", MODEL, "--port", port)
            self.assertIn(port, message)

    def test_a_remote_address_needs_consent_and_a_key(self):
        for flags in (["--address", "0.0.0.0"], ["--address", "0.0.0.0", "--allow-remote"],
                      ["--address", "0.0.0.0", "--api-key", "k"]):
            self.fails("serve", "--model", MODEL, "--port", "0", *flags)

    def test_a_prefix_cache_too_small_for_one_snapshot_is_refused_by_the_size_it_needs(self):
        message = self.fails("serve", "--model", MODEL, "--port", "0", "--prefix-cache-mib", "1")
        self.assertRegex(message, "--prefix-cache-mib 1 .* at least [0-9]+")

    def test_an_unknown_device_is_named(self):
        self.assertIn("tpu", self.fails("generate", "--model", MODEL, "--device", "tpu", "--prompt", "x"))

    def test_flags_for_gpus_are_refused_on_the_cpu(self):
        for flags in (["--devices", "0,0"], ["--reduction", "nccl"]):
            message = self.fails("generate", "--model", MODEL, "--tp", "2", "--prompt", "x", *flags)
            self.assertIn(flags[0], message)
            self.assertIn("--device cuda", message)

    def test_inspect_finds_nothing_wrong_with_the_demo_checkpoint(self):
        done = subprocess.run([SERVER, "inspect", MODEL, "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        json.loads(done.stdout)

    def test_bench_reports_identical_ids_at_every_depth(self):
        done = subprocess.run([SERVER, "bench", "--model", MODEL, "--device", "cpu", "--json", "--documents", "6"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["greedy_identical"])
        self.assertEqual(len(set(report["ids_hash"].values())), 1)
        self.assertGreaterEqual(report["tau"]["7"], report["tau"]["3"])


class OverRanks(unittest.TestCase):
    def test_a_served_text_is_right_and_does_not_depend_on_the_draft_depth(self):
        for tp in ("2", "4"):
            with Server("--tp", tp, "--lanes", "2") as server:
                for document in heldout(2):
                    texts = {server.chat(chat_body(document, speculative={"k": k}))["choices"][0]["message"]["content"]
                             for k in (0, 3, 7)}
                    self.assertEqual(len(texts), 1, f"--tp {tp} {document['id']}: {texts}")
                    self.assertEqual(json.loads(texts.pop()), document["expected"])
                self.assertEqual(server.stop(), 0)

    def test_the_memory_of_each_rank_is_printed(self):
        done = subprocess.run([SERVER, "generate", "--model", MODEL, "--tp", "4", "--prompt", "x", "--max-tokens", "2"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(4):
            self.assertRegex(done.stderr, rf"rank {rank} on CPU: packed weights [\d.]+ MiB, KV cache [\d.]+ MiB, GDN state")

    def test_inspect_counts_the_bytes_of_each_rank(self):
        done = subprocess.run([SERVER, "inspect", MODEL, "--tp", "4", "--json"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(len(report["ranks"]), 4)
        for rank in report["ranks"]:
            for group in ("mlp", "head", "attention", "gdn", "gdn_gates"):
                self.assertEqual(4 * rank["bytes"][group], report["classes"][group]["bytes"], group)
            self.assertEqual(rank["bytes"]["embedding"], report["classes"]["embedding"]["bytes"])

    def test_another_number_of_ranks_is_refused(self):
        done = subprocess.run([SERVER, "generate", "--model", MODEL, "--tp", "3", "--prompt", "x"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tp", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
