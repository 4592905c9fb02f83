// What a call with a wire type has besides its buffers: the layout of its run, its inputs in that layout, and
// the errors of what was encoded, which reach the residuals of the tensors only when the call is done. A call
// that is cancelled or fails changes no residual. Engine thread only.
#pragma once

#include <cstddef>
#include <vector>

#include "rueda/backend/backend.h"
#include "rueda/backend/reused_buffer.h"
#include "rueda/backend/wire_layout.h"
#include "rueda/schedule/step.h"

namespace rueda::backend {

class EncodedCall {
 public:
  // Lays the run out, and puts its sizes into the spec of the call. call is borrowed until the next one.
  void begin(Call& call);
  // Fails if this machine has no memory for the buffer.
  Status pack();
  [[nodiscard]] const std::byte* input() const { return reinterpret_cast<const std::byte*>(input_); }

  // The steps of a schedule that the layout matters to: kEncode, and kFinish from the wire buffer. The
  // results go straight to the tensors, because all members have started the call when the first one is
  // there.
  void encode(const schedule::Slice& to, const std::byte* from, std::byte* out);
  void deliver(const schedule::Slice& to, const std::byte* encoded) const;
  // The call is done.
  void commit() const;

 private:
  struct Encoded {
    int64_t begin = 0, count = 0;  // of the run
    bool is_result = false;        // otherwise it was sent for my host
  };
  [[nodiscard]] float* lost(const Encoded& encoded) const;
  static float* residual(const Segment& tensor, bool is_result) {
    return is_result ? tensor.residual.owned : tensor.residual.sent;
  }

  const Call* call_ = nullptr;
  WireLayout layout_;
  int64_t my_begin_ = 0;  // of what I own
  // The inputs; what an input loses when it is encoded takes its place. Then what the results lose.
  ReusedBuffer buffer_;
  float* input_ = nullptr;
  std::vector<Encoded> encoded_;
};

}  // namespace rueda::backend
