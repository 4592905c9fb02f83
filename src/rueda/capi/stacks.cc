// What the C ABI says about stacks and metrics.
#include "rueda/status/stacks.h"

#include "rueda/base/clock.h"
#include "rueda/capi/observed.h"
#include "rueda/capi/state.h"
#include "rueda/rueda.h"

using rueda::Code;
namespace capi = rueda::capi;
namespace status = rueda::status;

extern "C" {

const char* rueda_stacks(void) {
  const auto deadline = rueda::Deadline::after(status::kCaptureTime);
  return capi::keep_text(status::stacks_json(status::capture_stacks(deadline, status::Caller::kIncluded)));
}

int rueda_set_python_stacks(const rueda_python_stacks* source) {
  if (source == nullptr || source->struct_size != sizeof(rueda_python_stacks))
    return capi::fail(
        {Code::kInvalidArgument, "rueda_set_python_stacks: struct_size does not match this library."});
  const rueda::Status status = status::set_python_source({.signal = source->signal,
                                                          .ask_fd = source->ask_fd,
                                                          .done_fd = source->done_fd,
                                                          .with_lock_fd = source->with_lock_fd,
                                                          .without_lock_fd = source->without_lock_fd,
                                                          .thread = source->thread});
  return status.is_ok() ? RUEDA_OK : capi::fail(status);
}

const char* rueda_metrics(void) {
  return capi::keep_text(status::metrics_json(capi::current_metrics(capi::engine().get())));
}

int rueda_free_signal(void) { return status::free_signal(); }

}  // extern "C"
