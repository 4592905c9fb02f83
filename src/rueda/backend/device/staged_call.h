// One call that a StagedBackend has open: a call in device memory with its sections, or a call in host
// memory, which has one section and needs no copies. Engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/cuda_event.h"
#include "rueda/backend/device/device_copier.h"
#include "rueda/backend/device/sections.h"
#include "rueda/backend/device/staging_buffers.h"

namespace rueda::backend {

struct StagedSection {
  Section plan;                                      // empty in host memory
  StagingBuffer* buffer = nullptr;                   // null: this member has no tensors
  std::vector<std::shared_ptr<cuda::Event>> coming;  // copies to the buffer
  Segment segment;                                   // of the call in host memory
  CallId inner = 0;                                  // that call; 0: not started
  bool has_ended = false;

  [[nodiscard]] bool has_come() const;  // also if a copy has failed
};

class StagedCall {
 public:
  StagedCall(const Call& call, size_t section_bytes);

  [[nodiscard]] bool is_on_device() const { return is_on_device_; }
  // Whether it has sections to fetch, or to start, now or later. A call that has failed on all members alike
  // goes no further, and of one that is cancelled only the first section was started anywhere.
  [[nodiscard]] bool wants_fetch() const {
    return fetched < sections.size() && status.is_ok() && !is_cancelled;
  }
  [[nodiscard]] bool wants_start() const {
    return started < (is_cancelled ? 1 : sections.size()) && status.is_ok();
  }
  [[nodiscard]] bool is_at_work() const { return started > 0 && !sections.front().has_ended; }
  // Nothing is left to do, and no copy to the host is under way.
  [[nodiscard]] bool is_over() const;
  // Opens the copiers of the devices and checks the memory of the tensors.
  Status prepare(DeviceCopiers& copiers);
  // Looks at the ready events in turn. True when all have happened.
  Result<bool> is_ready();
  // The ready events that have not happened yet, for each copier.
  [[nodiscard]] std::vector<std::pair<DeviceCopier*, std::vector<cuda::CUevent>>> awaited() const;
  // Its sections pass through these buffers; cut again if they are slots. Before anything is fetched.
  void decide(StagingBuffers& buffers, std::optional<size_t> slot_section_bytes);
  [[nodiscard]] bool is_decided() const { return buffers != nullptr || !is_on_device_; }
  // Starts the copies of the next section to a buffer, if one is free. False: none is.
  Result<bool> fetch();
  // Starts the copies of a section's result to the devices.
  Status store(StagedSection& section);
  // The call in host memory that computes the next section.
  Call inner_call(CallId id);
  // The first failure counts.
  void fail(const Status& why);
  // Gives the buffers back that no copy uses any more.
  void return_buffers();
  [[nodiscard]] Done done() const;
  [[nodiscard]] std::vector<DeviceCopier*> copiers() const;

  Call call;
  std::vector<StagedSection> sections;
  StagingBuffers* buffers = nullptr;           // once it is decided
  bool uses_slots = false;                     // asked for, and from decide() on true only if it does
  bool must_set_up = false;                    // the members meet before
  size_t fetched = 0, started = 0, ended = 0;  // sections
  bool is_held = false;           // between pause() and resume(), before its first section has started
  bool is_cancelled = false;      // it has no result
  bool is_watched = false;        // the engine thread is woken when the tensors are ready
  std::vector<int32_t> arrivals;  // cancelled before it has started
  std::string_view how = "";
  Status status;
  std::optional<size_t> culprit;     // the segment at fault
  std::shared_ptr<CudaEvent> event;  // once everything is launched

 private:
  [[nodiscard]] std::vector<std::pair<DeviceCopier*, std::vector<cuda::TensorRun>>> runs_of(
      const std::vector<SectionRun>& runs, size_t place, bool is_output) const;

  void cut_sections(size_t section_bytes);

  bool is_on_device_, has_tensors_;
  std::vector<DeviceCopier*> copier_of_;  // [segments]; null: no bytes
  size_t ready_ = 0;                      // segments whose events have happened, from the first on
  // The last copy to each device.
  std::vector<std::pair<DeviceCopier*, std::shared_ptr<cuda::Event>>> stored_;
};

}  // namespace rueda::backend
