// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/answer_reader.hpp"
#include "api/call_record.hpp"
#include "api/errors.hpp"
#include "api/reply.hpp"
#include "api/reply_writer.hpp"
#include "engine/request.hpp"
#include "engine/service.hpp"

namespace qwen38::api {

/// One request from its body to the end of its reply: what the front end can cancel and the engine
/// reports to. Every member may be called from any thread.
class exchange final : public engine::observer {
 public:
  /// id: letters and digits, unique; the reply's id is "chatcmpl-" or "cmpl-" and this.
  exchange(engine::service& engine, endpoint kind, std::string id, std::shared_ptr<reply_sink> sink,
           std::shared_ptr<telemetry> traces);

  [[nodiscard]] endpoint kind() const noexcept { return kind_; }
  [[nodiscard]] std::string const& id() const noexcept { return id_; }

  /// The client has left: the engine stops as soon as it can, wherever the request is; one that was
  /// not yet submitted never will be.
  void cancel() noexcept;

  /// Submits the request, with `reader` for its answer and `writer` for its reply. Throws what
  /// engine::service::submit throws.
  static void submit(std::shared_ptr<exchange> const& self, engine::request request,
                     reply_writer writer, answer_reader reader, bool stream);

  /// Ends an exchange whose request was not taken.
  void fail(error_reply const& what) noexcept;

  void on_output(engine::output_delta const& delta) override;
  void on_finish(engine::result const& outcome) override;

 private:
  [[nodiscard]] bool is_cancelled();
  void begin_locked();
  void finish_locked(engine::result const& outcome);
  void take_locked(answer_step const& step);

  engine::service& engine_;
  endpoint const kind_;
  std::string const id_;
  std::shared_ptr<reply_sink> const sink_;
  call_record record_;

  std::mutex ticket_mutex_;  // never held while calling the engine or the sink
  std::optional<std::uint64_t> ticket_;
  bool cancelled_ = false;

  std::mutex reply_mutex_;  // orders calls to the sink
  std::optional<reply_writer> writer_;
  std::optional<answer_reader> reader_;
  bool stream_ = false;
  bool begun_ = false;
  bool finished_ = false;
  std::string frames_;  // reused from step to step
  answer answer_;       // of a plain reply
};

}  // namespace qwen38::api
