// SPDX-License-Identifier: Apache-2.0
// Requests that must be refused: each with its status, field and code, in one sentence that says
// what is wrong, where, and what was expected; and the server serves on.
#include "test/http/malformed_requests.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "test/http/server_fixture.hpp"

namespace qwen38::test {
namespace {

using nlohmann::json;

std::string or_null(json const& value) {
  return value.is_null() ? std::string() : value.get<std::string>();
}

/// The error object of a refusal; null, with a failure, if the reply is none.
json error_of(raw_reply const& reply) {
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.headers.count("x-request-id"), 1U);
  auto const type = reply.headers.find("content-type");
  EXPECT_TRUE(type != reply.headers.end() && type->second == "application/json");
  EXPECT_TRUE(reply.body.ends_with("}\n"));
  auto const body = json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || body.size() != 1 || !body.contains("error")) {
    ADD_FAILURE() << "not an error object: " << reply.body.substr(0, 300);
    return nullptr;
  }
  auto const& what = body["error"];
  for (auto const* const member : {"message", "type", "param", "code"})
    EXPECT_TRUE(what.contains(member)) << member;
  EXPECT_EQ(what.size(), 4U);
  EXPECT_EQ(what["type"], "invalid_request_error");
  EXPECT_TRUE(api::is_sentence(what["message"])) << what["message"];
  EXPECT_LE(what["message"].get<std::string>().size(), 300U);
  return what;
}

TEST(malformed_request, gets_its_status_and_one_sentence_and_the_server_lives) {
  http::options wanted;
  wanted.bounds.body_bytes = malformed_body_bytes;
  running_server served(short_answer, wanted);
  auto const requests = malformed_requests();
  ASSERT_GE(requests.size(), 60U);
  for (auto const& bad : requests) {
    SCOPED_TRACE(bad.name);
    raw_client client(served.port());
    client.send(bad.bytes);
    auto const reply = client.read_reply();
    ASSERT_EQ(reply.status, bad.status) << reply.body;
    auto const what = error_of(reply);
    ASSERT_FALSE(what.is_null());
    EXPECT_EQ(or_null(what["param"]), bad.param);
    EXPECT_EQ(or_null(what["code"]), bad.code);
    auto const message = what["message"].get<std::string>();
    for (auto const& word : bad.says)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
    if (bad.closes) {
      EXPECT_EQ(reply.headers.at("connection"), "close");
    } else {
      client.send(get("/v1/models"));
      EXPECT_EQ(client.read_reply().status, 200) << "on the same connection";
    }
    EXPECT_EQ(exchange_once(served.port(), get("/health")).status, 200);
  }
  EXPECT_TRUE(served.engine.requests().empty());
  EXPECT_EQ(exchange_once(served.port(), post(chat_path, chat_body)).status, 200);
}

TEST(malformed_request, w15_every_number_is_checked_for_type_and_range_on_both_endpoints) {
  running_server served(short_answer);
  raw_client client(served.port());
  std::size_t accepted = 0;
  for (auto const& field : numeric_fields()) {
    for (auto const& value : number_values()) {
      SCOPED_TRACE((field.chat ? "chat " : "text ") + field.name + " = " + value);
      client.send(with_value(field, value));
      auto const reply = client.read_reply();
      if (std::find(field.takes.begin(), field.takes.end(), value) != field.takes.end()) {
        ASSERT_EQ(reply.status, 200) << reply.body;
        ++accepted;
        continue;
      }
      ASSERT_EQ(reply.status, 400) << reply.body;
      auto const what = error_of(reply);
      ASSERT_FALSE(what.is_null());
      EXPECT_EQ(or_null(what["param"]), value == "NaN" ? "" : field.name);
      EXPECT_NE(what["message"].get<std::string>().find(value == "NaN" ? "JSON" : field.name),
                std::string::npos)
          << what["message"];
    }
  }
  EXPECT_EQ(served.engine.requests().size(), accepted);
}

}  // namespace
}  // namespace qwen38::test
