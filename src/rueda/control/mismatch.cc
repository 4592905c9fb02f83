#include "rueda/control/mismatch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace rueda::control {
namespace {

using Submissions = std::vector<Submission>;

// A sentence lists at most so much; a job may have thousands of ranks.
constexpr size_t kMaxListedRanks = 10;
constexpr size_t kMaxListedValues = 4;

std::string factor_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

// In a reducescatter an average is a sum with 1/n in its postscale. Ranks that disagree about the two
// therefore disagree about factors.
double effective_postscale(const TensorRequest& request, size_t member_count) {
  if (request.what == Collective::kReducescatter && request.op == ReduceOp::kAverage)
    return request.postscale / static_cast<double>(member_count);
  return request.postscale;
}

// The first submission that differs from that of the lowest rank.
template <class Get>
const TensorRequest* first_other(const Submissions& all, Get get) {
  for (const Submission& one : all)
    if (!(get(one.request) == get(all[0].request))) return &one.request;
  return nullptr;
}

// " Tensor x: rank 0 has a, ranks 1, 2 have b."
template <class Text>
std::string who_said_what(const Submissions& all, Text text) {
  std::vector<std::pair<std::string, std::vector<Rank>>> values;
  size_t others = 0;
  for (const Submission& one : all) {
    const std::string value = text(one.request);
    auto at = values.begin();
    while (at != values.end() && at->first != value) ++at;
    if (at != values.end()) {
      at->second.push_back(one.rank);
    } else if (values.size() < kMaxListedValues) {
      values.push_back({value, {one.rank}});
    } else {
      ++others;
    }
  }
  std::string out = " Tensor " + all[0].request.name;
  if (all[0].request.process_set != 0) out += " of process set " + std::to_string(all[0].request.process_set);
  for (size_t i = 0; i < values.size(); ++i) {
    out += (i == 0 ? ": " : ", ") + rank_list(values[i].second);
    out += values[i].second.size() == 1 ? " has " : " have ";
    out += values[i].first;
  }
  if (others != 0) out += ", and " + std::to_string(others) + " ranks have other values";
  return out + ".";
}

// One check. The results of `get` are compared. `text` makes Horovod's sentence from two requests; `detail`
// shows the value of one request in the list of ranks.
template <class Get, class Text, class Detail>
Status compare(const Submissions& all, Get get, Text text, Detail detail) {
  const TensorRequest* other = first_other(all, get);
  if (other == nullptr) return Status::ok();
  return {Code::kMismatch, text(all[0].request, *other) + who_said_what(all, detail)};
}

std::string shape_mismatch(const TensorRequest& a) {
  return "Mismatched " + std::string(operation_name(a)) + " tensor shapes: One rank sent a tensor ";
}

Status check_join(const CompleteTensor& tensor) {
  const TensorRequest& first = tensor.submissions[0].request;
  if (tensor.joined.empty()) return Status::ok();
  std::string why;
  switch (first.what) {
    case Collective::kAllgather:
      why =
          "Allgather is not supported with Join at this time. With sparse gradients use "
          "sparse_as_dense=True.";
      break;
    case Collective::kAlltoall:
      why = "Alltoall is not supported with Join at this time.";
      break;
    case Collective::kReducescatter:
      why = "Reducescatter is not supported with Join at this time.";
      break;
    case Collective::kBroadcast:
      why = "Broadcast is not supported with Join at this time.";
      break;
    default:
      return Status::ok();
  }
  why += " Tensor " + first.name + ": " + rank_list(tensor.joined);
  why += tensor.joined.size() == 1 ? " has joined." : " have joined.";
  return {Code::kUnsupported, std::move(why)};
}

Status check_equal_shapes(const Submissions& all) {
  return compare(
      all, [](const TensorRequest& r) -> const auto& { return r.shape; },
      [](const TensorRequest& a, const TensorRequest& b) {
        return shape_mismatch(a) + "of shape " + shape_string(a.shape) +
               ", but another rank sent a tensor of shape " + shape_string(b.shape) + ".";
      },
      [](const TensorRequest& r) { return shape_string(r.shape); });
}

Status check_factors(const CompleteTensor& tensor) {
  const size_t n = tensor.members.size();
  const auto factors = [n](const TensorRequest& r) {
    return std::pair(r.prescale, effective_postscale(r, n));
  };
  const auto bits = [&](const TensorRequest& r) {  // so that two NaNs are equal
    const auto [pre, post] = factors(r);
    return std::pair(std::bit_cast<uint64_t>(pre), std::bit_cast<uint64_t>(post));
  };
  const auto pair_text = [&](const TensorRequest& r) {
    const auto [pre, post] = factors(r);
    return "(" + factor_text(pre) + ", " + factor_text(post) + ")";
  };
  return compare(
      tensor.submissions, bits,
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched prescale and/or postscale factors: One rank sent factors " + pair_text(a) +
               ", but another rank sent factors " + pair_text(b) + ".";
      },
      [&](const TensorRequest& r) {
        return pair_text(r) +
               (r.what == Collective::kReducescatter ? " with " + std::string(name_of(r.op)) : "");
      });
}

Status check_ops(const Submissions& all) {
  const auto number = [](const TensorRequest& r) { return std::to_string(static_cast<int>(r.op)); };
  return compare(
      all, [](const TensorRequest& r) { return r.op; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched reduction operation: One rank sent reduction op " + number(a) +
               ", but another rank sent reduction op " + number(b) + ".";
      },
      [](const TensorRequest& r) { return std::string(name_of(r.op)); });
}

Status check_trailing_dimensions(const Submissions& all) {
  const auto shape_text = [](const TensorRequest& r) { return shape_string(r.shape); };
  Status status = compare(
      all, [](const TensorRequest& r) { return r.shape.size(); },
      [](const TensorRequest& a, const TensorRequest& b) {
        return shape_mismatch(a) + "of rank " + std::to_string(a.shape.size()) +
               ", but another rank sent a tensor of rank " + std::to_string(b.shape.size()) + ".";
      },
      shape_text);
  for (size_t dim = 1; status.is_ok() && dim < all[0].request.shape.size(); ++dim) {
    const auto with_dimension = [dim](const TensorRequest& r) {
      return "with dimension " + std::to_string(dim) + " equal to " + std::to_string(r.shape[dim]);
    };
    status = compare(
        all, [dim](const TensorRequest& r) { return r.shape[dim]; },
        [&](const TensorRequest& a, const TensorRequest& b) {
          return shape_mismatch(a) + with_dimension(a) + ", but another rank sent a tensor " +
                 with_dimension(b) + ".";
        },
        shape_text);
  }
  return status;
}

Status check_roots(const Submissions& all) {
  const auto root = [](const TensorRequest& r) { return std::to_string(r.root); };
  return compare(
      all, [](const TensorRequest& r) { return r.root; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched BROADCAST root ranks: One rank specified root rank " + root(a) +
               ", but another rank specified root rank " + root(b) + ".";
      },
      [&](const TensorRequest& r) { return "root " + root(r); });
}

Status check_devices(const Submissions& all) {
  const auto kind = [](const TensorRequest& r) { return std::string(r.device < 0 ? "CPU" : "GPU"); };
  return compare(
      all, [](const TensorRequest& r) { return r.device < 0; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched " + std::string(operation_name(a)) +
               " CPU/GPU device selection: One rank specified device " + kind(a) +
               ", but another rank specified device " + kind(b) + ".";
      },
      kind);
}

// Otherwise one rank would wait in a backend for devices while another sums in host memory.
Status check_memory(const Submissions& all) {
  const auto kind = [](const TensorRequest& r) { return std::string(name_of(r.memory)); };
  return compare(
      all, [](const TensorRequest& r) { return r.memory == MemoryKind::kDevice; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched " + std::string(operation_name(a)) + " memory: One rank gave " + kind(a) +
               " memory, but another rank gave " + kind(b) + " memory.";
      },
      kind);
}

Status check_wires(const Submissions& all) {
  const auto wire = [](const TensorRequest& r) { return std::string(name_of(r.wire)); };
  Status status = compare(
      all, [](const TensorRequest& r) { return r.wire; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched wire types: One rank sends " + wire(a) + ", but another rank sends " + wire(b) +
               ".";
      },
      wire);
  if (!status.is_ok()) status.why += " Give all ranks the same compression and the same RUEDA_WIRE.";
  return status;
}

Status check_dtypes(const Submissions& all) {
  const auto dtype = [](const TensorRequest& r) { return std::string(name_of(r.dtype)); };
  return compare(
      all, [](const TensorRequest& r) { return r.dtype; },
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched data types: One rank had type " + dtype(a) + ", but another rank had type " +
               dtype(b) + ".";
      },
      dtype);
}

Status check_operations(const Submissions& all) {
  const auto text = [](const TensorRequest& r) { return std::string(operation_name(r)); };
  return compare(
      all, operation_name,
      [&](const TensorRequest& a, const TensorRequest& b) {
        return "Mismatched operations: One rank did an " + text(a) + ", but another rank did an " + text(b) +
               ".";
      },
      text);
}

}  // namespace

std::string rank_list(const std::vector<Rank>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kMaxListedRanks; ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kMaxListedRanks)
    out += " and " + std::to_string(ranks.size() - kMaxListedRanks) + " more";
  return out;
}

std::string mismatch_verdict(const std::vector<Rank>& ranks, const std::function<std::string(Rank)>& who,
                             const Status& why) {
  std::string out = "Verdict: mismatch: ";
  for (size_t i = 0; i < ranks.size() && i < kMaxListedRanks; ++i)
    out += (i == 0 ? "" : ", ") + who(ranks[i]);
  if (ranks.size() > kMaxListedRanks)
    out += " and " + std::to_string(ranks.size() - kMaxListedRanks) + " more ranks";
  return out + ": " + why.why;
}

Status find_mismatch(const CompleteTensor& tensor) {
  const Submissions& all = tensor.submissions;
  const Collective what = all[0].request.what;
  if (Status status = check_dtypes(all); !status.is_ok() && what != Collective::kBarrier) return status;
  if (Status status = check_operations(all); !status.is_ok()) return status;
  if (what == Collective::kBarrier) return Status::ok();
  if (Status status = check_join(tensor); !status.is_ok()) return status;
  const bool needs_rows =
      what == Collective::kAllgather || what == Collective::kAlltoall || what == Collective::kReducescatter;
  if (what == Collective::kBroadcast || is_reduction(what))
    if (Status status = check_equal_shapes(all); !status.is_ok()) return status;
  if (is_reduction(what))
    if (Status status = check_factors(tensor); !status.is_ok()) return status;
  if (what == Collective::kAllreduce)
    if (Status status = check_ops(all); !status.is_ok()) return status;
  if (needs_rows && all[0].request.shape.empty())
    return {Code::kMismatch, "Process-set rank zero tried to " + std::string(name_of(what)) +
                                 " a rank-zero tensor. Tensor " + all[0].request.name +
                                 " has no dimension to gather or split along; give it one."};
  if (what == Collective::kAllgather || what == Collective::kAlltoall)
    if (Status status = check_trailing_dimensions(all); !status.is_ok()) return status;
  if (what == Collective::kBroadcast)
    if (Status status = check_roots(all); !status.is_ok()) return status;
  if (Status status = check_devices(all); !status.is_ok()) return status;
  if (Status status = check_memory(all); !status.is_ok()) return status;
  return check_wires(all);
}

Outnumbered outnumbered_among(const std::vector<std::vector<Rank>>& groups) {
  const auto is_smaller = [](const auto& a, const auto& b) {
    if (a.size() != b.size()) return a.size() < b.size();
    return std::ranges::min(a) > std::ranges::min(b);
  };
  const auto largest = std::ranges::max_element(groups, is_smaller);
  Outnumbered out{.is_certain = true};
  for (auto group = groups.begin(); group != groups.end(); ++group) {
    if (group == largest) continue;
    out.ranks.insert(out.ranks.end(), group->begin(), group->end());
    out.is_certain &= group->size() < largest->size();
  }
  std::ranges::sort(out.ranks);
  return out;
}

Outnumbered outnumbered_ranks(const CompleteTensor& tensor) {
  const auto shape_key = [](const TensorRequest& request) {
    const bool may_differ_in_rows =
        request.what == Collective::kAllgather || request.what == Collective::kAlltoall;
    std::vector<int64_t> shape(request.shape);
    if (may_differ_in_rows && !shape.empty()) shape[0] = 0;
    return shape;
  };
  using Kind = std::tuple<TermsKey, std::vector<int64_t>, int32_t>;
  std::map<Kind, std::vector<Rank>> by_kind;
  for (const Submission& one : tensor.submissions)
    by_kind[{key_of(one.request), shape_key(one.request), one.request.root}].push_back(one.rank);
  std::vector<std::vector<Rank>> groups;
  for (auto& [kind, ranks] : by_kind) groups.push_back(std::move(ranks));
  return outnumbered_among(groups);
}

std::string outnumbered_text(const Outnumbered& outnumbered) {
  if (!outnumbered.is_certain || outnumbered.ranks.empty()) return {};
  return " Outnumbered: " + rank_list(outnumbered.ranks) + ".";
}

}  // namespace rueda::control
