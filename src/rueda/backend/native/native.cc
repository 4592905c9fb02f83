#include "rueda/backend/native/native.h"

#include <algorithm>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::backend {
namespace {

using transport::Ticket;

// A ticket consists of the byte of its backend, 24 bits of the call's number here and 32 bits of the step's
// index. Ids of calls may differ in their high bits only, so they would not do.
constexpr int kByteShift = 56;
constexpr int kCallShift = 32;
constexpr Ticket kCallMask = 0xFFFFFF;

// The most bytes of local steps of each call between two looks at the transports. They take about 100 us, so
// that what arrives meanwhile is passed on in time.
constexpr size_t kRoundBudget = 1 << 20;

}  // namespace

NativeBackend::NativeBackend(Mesh mesh, NativeOptions options)
    : context_{.mesh = std::move(mesh), .options = std::move(options), .schedules = {}, .broken = {}} {
  NativeOptions& mine = context_.options;
  RUEDA_CHECK(mine.channels > 0, "calls need a channel");
  if (!mine.maker) mine.maker = make_with_registry(mine.algorithm, mine.is_bitwise);
  runners_.reserve(mine.channels);
  for (size_t channel = 0; channel < mine.channels; ++channel) runners_.emplace_back(context_, channel);
}

NativeBackend::~NativeBackend() = default;

Ticket NativeBackend::next_tickets() {
  return (Ticket{context_.options.ticket_byte} << kByteShift) | ((calls_++ & kCallMask) << kCallShift);
}

bool NativeBackend::owns(const transport::Completion& completion) const {
  return completion.ticket >> kByteShift == context_.options.ticket_byte;
}

void NativeBackend::start(const Call& call) {
  runners_[channel_of(call.order)].begin(call, next_tickets(), std::nullopt);
}

void NativeBackend::discard(const Call& call, std::span<const int32_t> arrivals) {
  RUEDA_CHECK(arrivals.size() == static_cast<size_t>(call.group->size()),
              "a discarded call needs the messages of every member");
  runners_[channel_of(call.order)].begin(call, next_tickets(), arrivals);
}

CallRunner& NativeBackend::runner_of(CallId call) {
  const auto at = std::ranges::find_if(
      runners_, [&](const CallRunner& runner) { return !runner.is_idle() && runner.call() == call; });
  RUEDA_CHECK(at != runners_.end(), "this call is not running");
  return *at;
}

std::vector<int32_t> NativeBackend::pause(CallId call) { return runner_of(call).pause(); }

void NativeBackend::resume(CallId call) { runner_of(call).resume(); }

void NativeBackend::cancel(CallId call, std::span<const int32_t> arrivals) {
  runner_of(call).cancel(arrivals);
}

bool NativeBackend::progress(std::vector<Done>& done) {
  bool moved = std::exchange(has_completions_, false);
  for (CallRunner& runner : runners_) moved = runner.progress(kRoundBudget, done) || moved;
  return moved;
}

bool NativeBackend::is_idle() const {
  return std::ranges::all_of(runners_, [](const CallRunner& runner) { return runner.is_idle(); });
}

// A call that has local steps to run goes on without any message, so this thread must not sleep.
bool NativeBackend::prepare_sleep() {
  return std::ranges::none_of(runners_, [](const CallRunner& runner) { return runner.has_work(); });
}

void NativeBackend::on_completion(const transport::Completion& completion) {
  RUEDA_CHECK(owns(completion), "a ticket of another owner");
  has_completions_ = true;
  const Ticket base = completion.ticket & ~uint64_t{UINT32_MAX};
  for (CallRunner& runner : runners_)
    if (runner.is_running() && runner.first_ticket() == base)
      return runner.on_completion(static_cast<uint32_t>(completion.ticket), completion.status);
  // Only abort() leaves tickets without a running call.
  RUEDA_CHECK(!context_.broken.is_ok(), "a completion for a call that is not running");
}

void NativeBackend::abort(const Status& why) {
  RUEDA_CHECK(!why.is_ok(), "an abort needs a reason");
  context_.broken = why;
  for (CallRunner& runner : runners_) runner.abort(why);
}

}  // namespace rueda::backend
