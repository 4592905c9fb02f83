// What a call with a wire type has besides its buffers: the layout of its run, its inputs in that layout
// where other ranks of the host need them, and the residuals that it replaces. Encoding reads a tensor and
// its residual and replaces the residual in one pass over memory; a call that is cancelled or fails puts the
// old ones back. Engine thread only.
#pragma once

#include <cstddef>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/native/prepared_schedule.h"
#include "rueda/backend/reused_buffer.h"
#include "rueda/backend/wire_layout.h"
#include "rueda/schedule/step.h"

namespace rueda::backend {

class EncodedCall {
 public:
  // Lays the run out, and puts its sizes into the spec of the call. call is borrowed until the next one.
  void begin(Call& call);
  // Before the steps of the schedule. Fails if this machine has no memory for the buffer.
  Status prepare(const PreparedSchedule& schedule);
  // The packed inputs; null if no step but kEncode reads them.
  [[nodiscard]] const std::byte* input() const { return reinterpret_cast<const std::byte*>(input_); }

  // The steps of a schedule that the layout matters to: kEncode, and kFinish from the wire buffer. from: the
  // sums; null: the inputs of this rank. The results go straight to the tensors, because all members have
  // started the call when the first one is there.
  void encode(const schedule::Slice& to, const std::byte* from, std::byte* out);
  void deliver(const schedule::Slice& to, const std::byte* encoded) const;
  // The call is done.
  void commit() { encoded_.clear(); }
  // It is cancelled or has failed: the residuals are what they were. At once, because another call may use
  // them next.
  void roll_back();

 private:
  struct Encoded {
    int64_t begin = 0, count = 0;  // of the run
    bool is_result = false;        // otherwise it was sent for my host
  };
  void pack();
  void load_filled(const Segment& tensor, int64_t begin, int64_t count, int64_t filled, float* to) const;
  [[nodiscard]] const float* input_of(const WireLayout::Piece& piece, int64_t offset, int64_t filled,
                                      int64_t count, float* room) const;
  [[nodiscard]] float* residual(const WireLayout::Piece& piece, bool is_result) const;

  const Call* call_ = nullptr;
  WireLayout layout_;
  ReusedBuffer buffer_;
  float* input_ = nullptr;
  float* replaced_ = nullptr;  // residuals, in the order of encoded_
  float* replaced_end_ = nullptr;
  std::vector<Encoded> encoded_;
};

}  // namespace rueda::backend
