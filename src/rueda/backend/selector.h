// Several backends behind one seam: each call goes to the first that accepts it. Calls run one after the
// other, so at most one backend is busy. Engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rueda/backend/backend.h"

namespace rueda::backend {

class Selector final : public Backend {
 public:
  // Best first; the last one accepts everything.
  explicit Selector(std::vector<std::unique_ptr<Backend>> backends);

  [[nodiscard]] std::string_view name() const override { return "selector"; }
  [[nodiscard]] bool accepts(const Group& group, const schedule::Spec& spec) const override;
  [[nodiscard]] bool takes_pieces(const Group& group, const schedule::Spec& spec) const override;
  void start(const Call& call) override;
  bool progress(std::vector<Done>& done) override;
  [[nodiscard]] bool is_idle() const override;
  [[nodiscard]] bool waits_on_memory() const override { return busy_ != nullptr && busy_->waits_on_memory(); }
  [[nodiscard]] std::string_view last_way() const override {
    return busy_ == nullptr ? "" : busy_->last_way();
  }
  bool prepare_sleep() override;
  void wake_up() override;
  [[nodiscard]] bool can_cancel(const Group& group, const schedule::Spec& spec) const override {
    return choose(group, spec).can_cancel(group, spec);
  }
  [[nodiscard]] bool spares_input(const Group& group, const schedule::Spec& spec) const override {
    return choose(group, spec).spares_input(group, spec);
  }
  std::vector<int32_t> pause() override;
  void resume() override;
  void cancel(std::span<const int32_t> arrivals) override;
  void drain(const Call& call, std::vector<int32_t> arrivals) override;
  void abort(const Status& why) override;

 private:
  struct Queued {
    Call call;
    std::optional<std::vector<int32_t>> drained;  // arrivals of a call that is drained
  };
  [[nodiscard]] Backend& choose(const Group& group, const schedule::Spec& spec) const;

  std::vector<std::unique_ptr<Backend>> backends_;
  std::deque<Queued> queue_;   // for another backend than the busy one
  Backend* busy_ = nullptr;    // of the last call started
  std::vector<Done> aborted_;  // to be handed out by progress()
};

}  // namespace rueda::backend
