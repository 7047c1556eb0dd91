# SPDX-License-Identifier: Apache-2.0
"""Renders conversations the way Qwen3.8's chat template does, for text messages without tools."""

EFFORTS = {
    "xhigh": "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, "
             "consider plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.",
    "medium": "",
    "low": "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion "
           "without unnecessary elaboration.",
}


def render(messages, enable_thinking=True, reasoning_effort=None):
    """The prompt for `messages` ([{role, content, reasoning_content?}]), ending where the assistant's text begins."""
    parts = [EFFORTS[reasoning_effort or "xhigh"]] if enable_thinking else []
    if messages[0]["role"] == "system":
        parts.append(messages[0]["content"].strip())
        messages = messages[1:]
    system = "\n\n".join(part for part in parts if part)
    out = [f"<|im_start|>system\n{system}<|im_end|>\n"] if system else []
    for message in messages:
        content = message["content"].strip()
        if message["role"] == "user":
            out.append(f"<|im_start|>user\n{content}<|im_end|>\n")
        else:
            reasoning = message.get("reasoning_content", "").strip()
            out.append(f"<|im_start|>assistant\n<think>\n{reasoning}\n</think>\n\n{content}<|im_end|>\n")
    out.append("<|im_start|>assistant\n<think>\n" + ("" if enable_thinking else "\n</think>\n\n"))
    return "".join(out)


def completion(reasoning, content, enable_thinking=True):
    """What the assistant writes after `render(...)`, its end token included."""
    return (f"{reasoning}\n</think>\n\n" if enable_thinking else "") + content + "<|im_end|>"
