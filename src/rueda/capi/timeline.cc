// What the C ABI says about the timeline and the flight record.
#include <memory>

#include "rueda/base/clock.h"
#include "rueda/base/config_texts.h"
#include "rueda/capi/observed.h"
#include "rueda/capi/state.h"
#include "rueda/rueda.h"

using rueda::Code;
using rueda::Status;
using rueda::runtime::Engine;
namespace capi = rueda::capi;

extern "C" {

int rueda_start_timeline(const char* path, int mark_cycles) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  if (path == nullptr || path[0] == '\0') {
    return capi::fail({Code::kInvalidArgument, "rueda_start_timeline: the path is empty."});
  }
  if (const Status named = rueda::check_timeline_path(path); !named.is_ok()) return capi::fail(named);
  const Status status = engine->start_timeline(path, mark_cycles != 0);
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

void rueda_mark_step(int64_t source) {
  if (!capi::engine()) return;
  const rueda::Nanos now = rueda::monotonic_now();
  capi::timeline().record(
      rueda::TraceSpan{.kind = rueda::SpanKind::kStep, .begin = now, .end = now, .value = source});
  capi::meters()->stepped(now, source);
}

void rueda_mark_input(int64_t waited_ns) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return;
  engine->input_ends();
  if (waited_ns < 0) return;
  const rueda::Nanos now = rueda::monotonic_now();
  capi::timeline().record(
      rueda::TraceSpan{.kind = rueda::SpanKind::kInput, .begin = now - waited_ns, .end = now});
  capi::meters()->waited_for_input(waited_ns);
}

void rueda_begin_input(void) {
  if (const std::shared_ptr<Engine> engine = capi::engine()) engine->input_begins();
}

int rueda_write_flight_record(const char* path) {
  if (!capi::engine()) return capi::fail_not_initialized();
  if (path == nullptr || path[0] == '\0')
    return capi::fail({Code::kInvalidArgument, "rueda_write_flight_record: the path is empty."});
  if (!capi::timeline().is_recording())
    return capi::fail({Code::kUnavailable,
                       "There is no flight record: RUEDA_FLIGHT_RECORD_BYTES is 0. Set it before init."});
  const Status status = capi::timeline().recorder().write_ring(path);
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

int rueda_stop_timeline(void) {
  const std::shared_ptr<Engine> engine = capi::engine();
  if (!engine) return capi::fail_not_initialized();
  engine->stop_timeline();
  return RUEDA_OK;
}

}  // extern "C"
