// SPDX-License-Identifier: Apache-2.0
#include "api/exchange.hpp"

#include <utility>

namespace qwen38::api {
namespace {

/// Seen by a client only if the server is stopping: who left reads nothing any more.
error_reply cancelled_reply() {
  error_reply out;
  out.status = 503;
  out.message = "The request was cancelled before it finished: the server is about to end.";
  out.code = "cancelled";
  return out;
}

/// Of an outcome that is no answer.
error_reply describe_end(engine::result const& outcome) {
  using engine::finish_reason;
  error_reply out;
  out.message = outcome.message;
  switch (outcome.finish) {
    case finish_reason::queue_timeout:
      out.status = 503;
      out.code = "queue_timeout";
      return out;
    case finish_reason::deadline:
      out.status = 504;
      out.code = "deadline_exceeded";
      return out;
    case finish_reason::failed: return out;
    default: return cancelled_reply();
  }
}

}  // namespace

exchange::exchange(engine::service& engine, endpoint kind, std::string id,
                   std::shared_ptr<reply_sink> sink, std::shared_ptr<telemetry> traces)
    : engine_(engine),
      kind_(kind),
      id_(std::move(id)),
      sink_(std::move(sink)),
      record_(std::move(traces), kind_, id_) {}

void exchange::cancel() noexcept {
  std::optional<std::uint64_t> ticket;
  {
    std::lock_guard const lock(ticket_mutex_);
    cancelled_ = true;
    ticket = ticket_;
  }
  if (ticket) engine_.cancel(*ticket);
}

bool exchange::is_cancelled() {
  std::lock_guard const lock(ticket_mutex_);
  return cancelled_;
}

void exchange::submit(std::shared_ptr<exchange> const& self, engine::request request,
                      reply_writer writer, answer_reader reader, bool stream) {
  if (self->is_cancelled()) {
    self->fail(cancelled_reply());
    return;
  }
  {
    std::lock_guard const lock(self->reply_mutex_);
    self->writer_.emplace(std::move(writer));
    self->reader_.emplace(std::move(reader));
    self->stream_ = stream;
  }
  request.id = self->id_;
  self->record_.submitted(request, stream);
  auto const ticket = self->engine_.submit(std::move(request), self);
  bool cancelled = false;
  {
    std::lock_guard const lock(self->ticket_mutex_);
    self->ticket_ = ticket;
    cancelled = self->cancelled_;
  }
  if (cancelled) self->engine_.cancel(ticket);
  // The engine may have reported output by now; if not, the client learns here that it is in the
  // queue.
  std::lock_guard const lock(self->reply_mutex_);
  self->begin_locked();
}

void exchange::fail(error_reply const& what) noexcept {
  std::lock_guard const lock(reply_mutex_);
  if (finished_) return;
  finished_ = true;
  record_.refused(what);
  sink_->send(to_reply(what));
}

void exchange::begin_locked() {
  if (!stream_ || begun_) return;
  begun_ = true;
  sink_->begin_stream();
  frames_.clear();
  writer_->append_begin(frames_);
  if (!frames_.empty()) sink_->write(frames_);
}

void exchange::take_locked(answer_step const& step) {
  if (!stream_) {
    answer_.add(step);
    return;
  }
  begin_locked();
  frames_.clear();
  writer_->append_step(frames_, step);
  if (!frames_.empty()) sink_->write(frames_);
}

void exchange::on_output(engine::output_delta const& delta) {
  std::lock_guard const lock(reply_mutex_);
  record_.output(delta);
  take_locked(reader_->read(delta));
}

void exchange::on_finish(engine::result const& outcome) {
  std::lock_guard const lock(reply_mutex_);
  if (finished_) return;
  finished_ = true;
  finish_locked(outcome);
}

void exchange::finish_locked(engine::result const& outcome) {
  bool const answered = outcome.finish == engine::finish_reason::stop ||
                        outcome.finish == engine::finish_reason::length;
  // Before the client hears of its end: who has its answer finds it counted.
  record_.finished(outcome, stream_ || answered ? 200 : describe_end(outcome).status);
  if (answered) take_locked(reader_->finish(outcome));
  if (!stream_ && answered) {
    sink_->send({200, writer_->whole(answer_, outcome, reader_->called())});
    return;
  }
  if (!stream_) {
    auto problem = describe_end(outcome);
    problem.retry_after_s = engine_.get_state().retry_after_s;
    sink_->send(to_reply(problem));
    return;
  }
  begin_locked();
  frames_.clear();
  if (answered) {
    writer_->append_end(frames_, outcome, reader_->called());
  } else {
    append_error_frame(frames_, error_body(describe_end(outcome)));
  }
  sink_->write(frames_);
  sink_->end_stream();
}

}  // namespace qwen38::api
