// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/request_fields.hpp"

namespace qwen38::api {

/// Refuses, by name, what a request of either endpoint asks for and this server cannot do: fields
/// of the OpenAI API and those that other servers have added to it. Their neutral values pass (null
/// always, n: 1, echo: false, store: false, ...). Throws field_error.
void refuse_unserved_fields(request_fields const& body);

/// The same for what is served for chat completions only. For the other endpoint.
void refuse_chat_fields(request_fields const& body);

/// The same for one element of `messages`.
void refuse_unserved_message_fields(request_fields const& message);

}  // namespace qwen38::api
