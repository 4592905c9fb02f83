#include "rueda/backend/mpi/transfer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "rueda/base/check.h"

namespace rueda::backend::mpi {
namespace {

// Pieces under way at once. Two would keep the network busy; more hide what a piece costs to start.
constexpr size_t kMostOpen = 8;

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void to_int(const std::vector<int64_t>& counts, std::vector<int>& ints, std::vector<int>& begins) {
  int64_t begin = 0;
  for (const int64_t count : counts) {
    ints.push_back(static_cast<int>(count));
    begins.push_back(static_cast<int>(begin));
    begin += count;
  }
}

}  // namespace

Transfer::Transfer(const TransferSpec& spec)
    : spec_(spec),
      element_bytes_(size_of(spec.spec->dtype)),
      terms_{.comm = spec.comm, .type = type_of(spec.spec->dtype), .op = spec.op, .peer = -1} {
  RUEDA_CHECK(spec.most_elements > 0, "a piece needs at least one element");
  plan();
}

void Transfer::plan() {
  switch (spec_.spec->what) {
    case Collective::kAllreduce:
      return plan_allreduce();
    case Collective::kBroadcast:
      return plan_broadcast();
    case Collective::kAllgather:
      return plan_allgather();
    case Collective::kReducescatter:
      return plan_reducescatter();
    case Collective::kAlltoall:
      return plan_alltoall();
    case Collective::kBarrier:
      pieces_.emplace_back(
          [this](Library& mpi, Request& request) { return mpi.ibarrier(spec_.comm, request); });
      return;
    case Collective::kJoin:
      RUEDA_CHECK(false, "a join is no call of a backend");
  }
}

Result<bool> Transfer::progress(Library& library) {
  for (Request& request : open_) {
    const Result<bool> is_done = library.test(request);
    if (!is_done.is_ok()) return is_done;
    if (is_done.value()) request = {};
  }
  std::erase_if(open_, [](const Request& request) { return request.handle == 0; });
  while (next_ < pieces_.size() && open_.size() < kMostOpen) {
    Request request;
    if (Status s = pieces_[next_++](library, request); !s.is_ok()) return s;
    open_.push_back(request);
  }
  return open_.empty();
}

std::byte* Transfer::at(std::byte* buffer, int64_t element) const {
  return buffer + static_cast<size_t>(element) * element_bytes_;
}

// Calls make(first element, elements) for each piece of a run.
template <class Make>
void Transfer::cut(int64_t count, const Make& make) {
  for (int64_t begin = 0; begin < count; begin += spec_.most_elements)
    make(begin, static_cast<int>(std::min(spec_.most_elements, count - begin)));
}

void Transfer::plan_allreduce() {
  RUEDA_CHECK(spec_.input == spec_.output, "an allreduce runs in place");
  cut(spec_.spec->count, [&](int64_t begin, int count) {
    pieces_.emplace_back([this, begin, count](Library& mpi, Request& request) {
      return mpi.iallreduce(at(spec_.output, begin), count, terms_, request);
    });
  });
}

void Transfer::plan_broadcasts(std::byte* buffer, int64_t count, Rank root) {
  cut(count, [&](int64_t begin, int piece) {
    pieces_.emplace_back([this, buffer, begin, piece, root](Library& mpi, Request& request) {
      Terms terms = terms_;
      terms.peer = root;
      return mpi.ibcast(at(buffer, begin), piece, terms, request);
    });
  });
}

void Transfer::plan_broadcast() {
  const int64_t count = spec_.spec->count;
  if (spec_.me == spec_.spec->root && count > 0)
    std::memcpy(spec_.output, spec_.input, static_cast<size_t>(count) * element_bytes_);
  plan_broadcasts(spec_.output, count, spec_.spec->root);
}

void Transfer::plan_allgather() {
  const std::vector<int64_t>& counts = spec_.spec->counts;
  const int64_t all = total(counts), mine = counts[static_cast<size_t>(spec_.me)];
  if (all == 0) return;
  if (fits(all)) {
    to_int(counts, take_, take_begins_);
    pieces_.emplace_back([this, mine](Library& mpi, Request& request) {
      const OutParts out{spec_.output, take_.data(), take_begins_.data()};
      return mpi.iallgatherv(spec_.input, static_cast<int>(mine), out, terms_, request);
    });
    return;
  }
  int64_t begin = 0;
  for (Rank member = 0; member < spec_.size; ++member) {
    const int64_t count = counts[static_cast<size_t>(member)];
    if (member == spec_.me && count > 0)
      std::memcpy(at(spec_.output, begin), spec_.input, static_cast<size_t>(count) * element_bytes_);
    plan_broadcasts(at(spec_.output, begin), count, member);
    begin += count;
  }
}

void Transfer::plan_reducescatter() {
  const std::vector<int64_t>& counts = spec_.spec->counts;
  const int64_t all = total(counts);
  if (all == 0) return;
  if (fits(all)) {
    std::vector<int> unused;
    to_int(counts, take_, unused);
    pieces_.emplace_back([this](Library& mpi, Request& request) {
      return mpi.ireduce_scatter(spec_.input, spec_.output, take_.data(), terms_, request);
    });
    return;
  }
  int64_t first = 0;
  for (Rank member = 0; member < spec_.size; ++member) {
    const int64_t count = counts[static_cast<size_t>(member)];
    cut(count, [&](int64_t begin, int piece) {
      pieces_.emplace_back([this, member, first, begin, piece](Library& mpi, Request& request) {
        Terms terms = terms_;
        terms.peer = member;
        std::byte* const out = member == spec_.me ? at(spec_.output, begin) : nullptr;
        return mpi.ireduce(at(spec_.input, first + begin), out, piece, terms, request);
      });
    });
    first += count;
  }
}

void Transfer::plan_alltoall() {
  const std::vector<int64_t>& counts = spec_.spec->counts;  // [size * size], source-major
  const auto n = static_cast<size_t>(spec_.size), me = static_cast<size_t>(spec_.me);
  std::vector<int64_t> give(n), take(n);
  int64_t most = 0;  // that any member gives or takes: all members must cut, or none
  bool has_idle_member = false;
  for (size_t member = 0; member < n; ++member) {
    give[member] = counts[me * n + member];
    take[member] = counts[member * n + me];
    int64_t given = 0, taken = 0;
    for (size_t other = 0; other < n; ++other) {
      given += counts[member * n + other];
      taken += counts[other * n + member];
    }
    most = std::max({most, given, taken});
    has_idle_member = has_idle_member || (given == 0 && taken == 0);
  }
  if (most == 0) return;
  // A rank that has nothing to do in MPI_Ialltoallv of Open MPI 4.1 does not count it, and what it calls next
  // meets other messages.
  if (has_idle_member || !fits(most)) return plan_messages(give, take);
  to_int(give, give_, give_begins_);
  to_int(take, take_, take_begins_);
  pieces_.emplace_back([this](Library& mpi, Request& request) {
    const InParts in{spec_.input, give_.data(), give_begins_.data()};
    const OutParts out{spec_.output, take_.data(), take_begins_.data()};
    return mpi.ialltoallv(in, out, terms_, request);
  });
}

// Round k: to the k-th next member, and from the k-th before. Sends and receives alternate, so the earliest
// pieces of the slowest rank always have their counterparts posted.
void Transfer::plan_messages(const std::vector<int64_t>& give, const std::vector<int64_t>& take) {
  std::vector<int64_t> give_at(give.size(), 0), take_at(take.size(), 0);
  std::partial_sum(give.begin(), give.end() - 1, give_at.begin() + 1);
  std::partial_sum(take.begin(), take.end() - 1, take_at.begin() + 1);
  const auto me = static_cast<size_t>(spec_.me);
  std::memcpy(at(spec_.output, take_at[me]), at(spec_.input, give_at[me]),
              static_cast<size_t>(give[me]) * element_bytes_);
  for (Rank round = 1; round < spec_.size; ++round) {
    const Rank to = (spec_.me + round) % spec_.size, from = (spec_.me + spec_.size - round) % spec_.size;
    const auto dst = static_cast<size_t>(to), src = static_cast<size_t>(from);
    for (int64_t begin = 0; begin < std::max(give[dst], take[src]); begin += spec_.most_elements) {
      const auto add = [&](int64_t count, std::byte* buffer, Rank peer, bool is_send) {
        if (begin >= count) return;
        const int piece = static_cast<int>(std::min(spec_.most_elements, count - begin));
        pieces_.emplace_back([this, buffer, piece, peer, is_send](Library& mpi, Request& request) {
          Terms terms = terms_;
          terms.peer = peer;
          return is_send ? mpi.isend(buffer, piece, terms, request)
                         : mpi.irecv(buffer, piece, terms, request);
        });
      };
      add(take[src], at(spec_.output, take_at[src] + begin), from, false);
      add(give[dst], at(spec_.input, give_at[dst] + begin), to, true);
    }
  }
}

}  // namespace rueda::backend::mpi
