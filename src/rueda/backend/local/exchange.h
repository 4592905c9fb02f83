// Allgather, broadcast, reducescatter and alltoall in shared memory. The plan (exchange_plan.h) says who
// gives whom which elements. The size decides how they pass, and all ranks make the same decision:
//   inline    Each member gives each other one up to 96 bytes, which travel in the posts.
//   one_shot  What each member gives fits its one-shot buffer, into which it is copied before the call is
//             announced. The others copy it to their outputs, or reduce it. One synchronisation.
//   staged    Chunks pass through the stages of their giver, which stay in cache: while one is filled, the
//             others take those before it.
// A member whose inputs lie in its arena gives from there instead, in one_shot and in staged calls
// (registered, if all givers do so): the others read them where they are. Every input is then read once, and
// every output is written once. What a member gives itself never passes through a buffer.
//
// A reducescatter adds in rank order, in the accumulator type, and rounds once, as an allreduce does: the
// bits are those of its part of an allreduce. Engine thread only.
#pragma once

#include <string_view>
#include <vector>

#include "rueda/backend/local/exchange_plan.h"
#include "rueda/backend/local/local_call.h"

namespace rueda::backend {

class LocalExchange final : public LocalWork {
 public:
  // stages: who may still read my stages, which other kinds of collectives use as well.
  explicit LocalExchange(BufferUsers& stages) : stages_(stages) {}

  void begin(const LocalCall& call) override;
  [[nodiscard]] size_t bytes() const override { return plan_.total_bytes(); }
  [[nodiscard]] bool is_inline() const override { return plan_.algorithm() == LocalAlgorithm::kInline; }
  void prepare() override;
  [[nodiscard]] bool shows_table() const override { return shows_registered_; }
  void write_payload(const LocalPeer& peer, std::byte* payload) const override;
  std::string_view choose() override;
  LocalTurn advance() override;

 private:
  // How far the parcel from one member has been taken.
  struct Giver {
    const LocalPeer* peer = nullptr;  // null: myself
    bool is_registered = false;
    uint64_t chunks = 0, taken = 0;
  };

  bool contribute();
  bool take();
  bool reduce();
  void note_taken(Giver& giver);
  [[nodiscard]] bool has(const Giver& giver, uint64_t chunk) const;
  const std::byte* source(const Giver& giver, size_t member, const ParcelPiece& piece);
  void load_range(const Parcel& parcel, size_t begin, size_t end, std::byte* to) const;

  [[nodiscard]] bool reduces() const { return is_reduction(call_->call.spec.what); }
  // My own contribution to my result differs from my input, so it lies in a buffer as the others do.
  [[nodiscard]] bool loads_own() const { return reduces() && call_->must_load; }
  [[nodiscard]] size_t my_place() const { return static_cast<size_t>(call_->me()); }
  // Calls f(member, its parcel) for each parcel that lies in my buffers.
  template <class F>
  void for_receivers(const F& f) const {
    if (plan_.is_shared()) return f(0, plan_.outgoing(0));
    for (Rank to = 0; to < static_cast<Rank>(call_->ranks()); ++to)
      if (to != call_->me() || loads_own()) f(to, plan_.outgoing(to));
  }

  BufferUsers& stages_;
  const LocalCall* call_ = nullptr;
  ExchangePlan plan_;
  bool shows_registered_ = false, is_valid_ = true;
  bool writes_past_caches_ = false;               // the results are large
  uint64_t contributed_ = 0, to_contribute_ = 0;  // chunks
  std::vector<Giver> givers_;                     // [member]
  size_t next_giver_ = 0;
  alignas(64) std::byte own_payload_[kInlineBytes];  // inline, if my contribution differs from my input
  std::vector<const void*> sources_;
};

}  // namespace rueda::backend
