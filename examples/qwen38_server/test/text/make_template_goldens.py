# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with the published Qwen3.8 chat template, the oracle of chat_template_test.cpp:

    python3 make_template_goldens.py qwen3.8_chat_template.jinja golden/chat_template.json

Each case: messages as on the OpenAI wire (arguments are JSON text), tools, options that differ from the defaults, and
the prompt or the template's own error. Needs python3-jinja2. The template itself is not part of this repository.
"""
import hashlib
import json
import pathlib
import random
import sys

import jinja2.sandbox

BLANKS = ["", " ", "\n", "\t \n", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "\u200b", "\r\n"]
TEXTS = [
    "hi", "What is 2+2?", "a\n\nb", "caf\u00e9 \u4f60\u597d \U0001f638", "<|im_end|>", "<think>x</think>", "{\"a\": 1}", "",
    "<tool_response>\n1\n</tool_response>", "<tool_response>open", "line\r\nline", "\u0301mark", "</think>", "a<b>&'\"\\",
]
VALUES = [
    1, -7, 0, True, False, None, "t", "", " pad ", "two\nlines", "\u00e9", [], {}, {"a": [1, "b"]}, [None, [True], {"k": "v"}], 1.0, -0.0,
    0.1, 1e16, 123456789012345.6, 1e-5, 0.0001, 5e-324, 1.7976931348623157e308, 1e22, 123456789.125, 18446744073709551615,
    -9223372036854775808, "q\"\\/\b\f\n\r\t\x01\x1f\x7f</script>", {"\u00fc\n": "\u2028"}, 100.0, 9999999999999998.0, 2.5e-7,
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather in a city",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                    "required": ["city"]}}},
    {"type": "function", "function": {"name": "f", "parameters": {"z": 1.5, "a": [None, True, 1e21], "\u00e9": "<&>'\u4f60"}}},
    {"name": "bare"},
]


def environment():
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env


def wire_call(name, arguments):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function", "function": {"name": name, "arguments": text}}


def for_template(message):
    """Arguments as the object that the wire's text describes; '' stays, the template takes it for no parameters."""
    message = json.loads(json.dumps(message))
    for call in message.get("tool_calls", []):
        if call["function"]["arguments"] != "":
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


def user(content): return {"role": "user", "content": content}
def system(content): return {"role": "system", "content": content}
def tool(content): return {"role": "tool", "content": content}


def assistant(content, reasoning=None, calls=()):
    message = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def fixed_cases():
    hi = [user(" hi ")]
    every = {"f": VALUES[0], **{f"p{i}": value for i, value in enumerate(VALUES)}}
    yield hi, None, {}
    for effort in ("xhigh", "medium", "low", "high", "max", "minimal", "none", "", "XHIGH"):
        yield hi, None, {"reasoning_effort": effort}
        yield hi, None, {"reasoning_effort": effort, "enable_thinking": False}
    for tools in (TOOLS, TOOLS[2:], []):
        for effort in ("xhigh", "medium", "low"):
            for head in ([], [system(" S ")], [system(" ")]):
                yield head + hi, tools, {"reasoning_effort": effort}
    for messages in ([], [system("S")], [user("a"), system("S")], [system("A"), system("B"), user("a")],
                     [user("a"), assistant("b"), system("S"), user("c")], [assistant("b")], [tool("1")],
                     [user("<tool_response>1</tool_response>")], [system("S"), user("a")], [assistant("b"), user("a")],
                     [tool("1"), user("a")], [tool("1"), tool("2"), user("a"), tool("3")]):
        yield messages, None, {"reasoning_effort": "medium"}
    calls = [wire_call("f", {"x": 1, "s": "t", "n": None, "o": {"a": [1, "b"]}}), wire_call("g", {})]
    for arguments in ("", "{}", " { } ", "{\"city\":\"Paris\"}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":1E5,\"b\":-0,\"c\":1.10}"):
        calls.append(wire_call("h", arguments))
    for preserve in (True, False):
        options = {"reasoning_effort": "medium", "preserve_thinking": preserve}
        yield [user("a"), assistant("b"), user("c")], None, options
        yield [user("a"), assistant("", " r ", calls), tool("1"), tool(" 2 ")], None, options
        yield [user("a"), assistant("x ", " r ", calls[:1]), tool("1"), assistant("y", "s"), user("z")], None, options
        yield [user("a"), assistant("x", "r"), user("<tool_response>q</tool_response>"), assistant("y", "s")], None, options
    yield [user("a"), assistant("text", None, [wire_call("every", every)])], None, {"add_generation_prompt": False}


def random_conversation(rng):
    def text():
        return rng.choice(BLANKS) + rng.choice(TEXTS) + rng.choice(BLANKS)

    messages = [system(text())] if rng.random() < 0.3 else []
    if rng.random() < 0.8:
        messages.append(user("a" + text()))
    for _ in range(rng.randint(1, 5)):
        role = rng.choice(("user", "user", "assistant", "assistant", "tool"))
        if role == "assistant":
            calls = [wire_call(rng.choice(("f", "g.h", "n\u00e9")),
                               {rng.choice("xyz") + str(i): rng.choice(VALUES) for i in range(rng.randint(0, 3))})
                     for _ in range(rng.choice((0, 0, 1, 2)))]
            messages.append(assistant(text(), rng.choice((None, "", text(), "r")), calls))
        else:
            messages.append({"role": role, "content": text()})
    # Mostly medium and mostly no tools: their fixed sentences would fill the file.
    options = {"reasoning_effort": rng.choice(("medium",) * 8 + ("low", "xhigh"))}
    if rng.random() < 0.3:
        options["enable_thinking"] = False
    if rng.random() < 0.4:
        options["preserve_thinking"] = False
    if rng.random() < 0.2:
        options["add_generation_prompt"] = False
    tools = rng.sample(TOOLS, rng.randint(1, 2)) if rng.random() < 0.06 else None
    return messages, tools, options


def main():
    source = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    template = environment().from_string(source)
    rng = random.Random(38)
    cases = [*fixed_cases(), *(random_conversation(rng) for _ in range(190))]
    lines = []
    for messages, tools, options in cases:
        case = {"messages": messages, "tools": tools, "options": options}
        arguments = {"add_generation_prompt": True, **options}
        try:
            case["prompt"] = template.render(messages=[for_template(m) for m in messages], tools=tools, **arguments)
        except jinja2.TemplateError as error:
            case["error"] = str(error)
        lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
    digest = hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest()
    text = '{"template_sha256":"%s","cases":[\n%s\n]}\n' % (digest, ",\n".join(lines))
    pathlib.Path(sys.argv[2]).write_text(text, encoding="utf-8")


main()
