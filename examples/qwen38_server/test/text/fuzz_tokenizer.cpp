// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: the first byte chooses what the rest is fed to. Run in this folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"
#include "text/chat_template.hpp"
#include "text/text_stream.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace qwen38::text {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void load(std::string_view bytes) {
  try {
    (void)tokenizer::from_json(bytes, "fuzz").encode("The <think> invoice");
  } catch (error const&) {
  }
}

void encode(std::string_view bytes) {
  tokenizer const& source = testing::tiny();
  auto const as_text = source.encode(bytes, special_policy::as_text);
  for (std::int32_t const id : as_text) require(!source.is_special(id));
  require(source.decode(as_text, true) == nfc(repair_utf8(bytes)));
  // Between added tokens each part is normalised for itself.
  require(nfc(source.decode(source.encode(bytes), false)) == nfc(repair_utf8(bytes)));
}

void stream(std::string_view bytes) {
  tokenizer const& source = testing::tiny();
  text_stream out(source, {"\n\n", "stop"}, !bytes.empty() && bytes[0] % 2 != 0);
  std::string printed;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    auto const id =
        (static_cast<unsigned char>(bytes[i]) * 256 + static_cast<unsigned char>(bytes[i + 1])) %
        source.vocab_size();
    text_delta const delta = out.push(id);
    printed += delta.reasoning + delta.content;
  }
  text_delta const last = out.finish();
  printed += last.reasoning + last.content;
  require(printed == repair_utf8(printed));
}

void chat(std::string_view bytes) {
  std::string const text(bytes);
  std::vector<message> const messages = {{chat_role::user, text, {}, {}},
                                         {chat_role::assistant, text, text, {{text, text}}},
                                         {chat_role::tool, text, {}, {}}};
  try {
    std::string const prompt = render(messages, nullptr);
    require(prompt == repair_utf8(prompt));
    auto const ids = encode_chat(testing::tiny(), messages, nullptr);
    require(testing::tiny().decode(ids, false).starts_with("<|im_start|>system\n"));
  } catch (error const&) {
  }
}

}  // namespace
}  // namespace qwen38::text

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view const rest(reinterpret_cast<char const*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: qwen38::text::load(rest); break;
    case 1: qwen38::text::encode(rest); break;
    case 2: qwen38::text::stream(rest); break;
    default: qwen38::text::chat(rest); break;
  }
  return 0;
}
