// A call in host memory by which the members of a process set tell one another something, or wait for one
// another. One at a time; the backend that runs it knows it by an id that no other call has. Engine thread
// only.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class PeerSync {
 public:
  explicit PeerSync(Backend& host) : host_(host) {}

  // In the place of this call in the global order. The group and the segments are borrowed until it has
  // ended.
  void begin(const Call& at, const Group& group, schedule::Spec spec, std::span<const Segment> segments) {
    host_.start(open(at, group, std::move(spec), segments));
  }
  // As Cancellation::discard, for such a host sync.
  void discard(const Call& at, const Group& group, schedule::Spec spec, std::span<const Segment> segments,
               std::span<const int32_t> arrivals) {
    host_.cancellation()->discard(open(at, group, std::move(spec), segments), arrivals);
  }
  // Whether it was a host sync that the host backend has returned.
  bool take(const Done& done) {
    if ((done.id & kMark) == 0) return false;
    if (done.id == id_) outcome_ = done.status;
    return true;
  }
  std::optional<Status> take_outcome() { return std::exchange(outcome_, std::nullopt); }
  [[nodiscard]] CallId id() const { return id_; }
  [[nodiscard]] Cancellation& cancellation() { return *host_.cancellation(); }

 private:
  // Of the ids of host syncs, among those of the owner's calls.
  static constexpr CallId kMark = CallId{1} << 63;

  Call open(const Call& at, const Group& group, schedule::Spec spec, std::span<const Segment> segments) {
    outcome_.reset();
    id_ = kMark | ++count_;
    return {.id = id_,
            .order = at.order,
            .group = &group,
            .spec = std::move(spec),
            .segments = segments,
            .generation = at.generation};
  }

  Backend& host_;
  CallId id_ = 0, count_ = 0;
  std::optional<Status> outcome_;
};

}  // namespace rueda::backend
