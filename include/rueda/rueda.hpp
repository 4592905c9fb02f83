// rueda for C++20 programs: a thin header over rueda.h. It throws no exceptions: functions that can fail
// return an Outcome or an Expected.
//
//   rueda::Session session;                       // joins the job that started this process
//   if (auto up = session.init(); !up.ok()) { std::fputs(up.why.c_str(), stderr); return 1; }
//   std::vector<float> grad(n);
//   auto done = rueda::allreduce(grad, "grad");   // average over all ranks, in place
//
// Buffers are vectors, arrays or spans, taken as one-dimensional; allgather, alltoall and reducescatter take
// `row` elements per row (default 1), of which a buffer holds a whole number, and split by rows. Names match
// operations of different ranks; one name may be in flight once per process.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "rueda/rueda.h"

namespace rueda {

struct [[nodiscard]] Outcome {
  rueda_status code = RUEDA_OK;
  std::string why;  // one sentence; empty if ok
  [[nodiscard]] bool ok() const { return code == RUEDA_OK; }
};

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : held_(std::move(value)) {}
  Expected(Outcome failure) : held_(std::move(failure)) {}
  [[nodiscard]] bool ok() const { return held_.index() == 0; }
  // Valid only if ok().
  [[nodiscard]] T& value() { return *std::get_if<0>(&held_); }
  [[nodiscard]] const T& value() const { return *std::get_if<0>(&held_); }
  [[nodiscard]] Outcome outcome() const { return ok() ? Outcome{} : *std::get_if<1>(&held_); }

 private:
  std::variant<T, Outcome> held_;
};

enum class Op : int32_t {
  kAverage = RUEDA_AVERAGE,
  kSum = RUEDA_SUM,
  kAdasum = RUEDA_ADASUM,
  kMin = RUEDA_MIN,
  kMax = RUEDA_MAX,
  kProduct = RUEDA_PRODUCT,
};

// The element types of this header. For 16-bit floats, use rueda.h itself.
template <class T>
concept Element = std::same_as<T, bool> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, uint8_t> || std::same_as<T, int8_t> || std::same_as<T, uint16_t> ||
    std::same_as<T, int16_t> || std::same_as<T, int32_t> || std::same_as<T, int64_t>;

template <Element T>
constexpr rueda_dtype dtype_of() {
  if (std::same_as<T, bool>) return RUEDA_BOOL;
  if (std::same_as<T, float>) return RUEDA_FLOAT32;
  if (std::same_as<T, double>) return RUEDA_FLOAT64;
  if (std::same_as<T, uint8_t>) return RUEDA_UINT8;
  if (std::same_as<T, int8_t>) return RUEDA_INT8;
  if (std::same_as<T, uint16_t>) return RUEDA_UINT16;
  if (std::same_as<T, int16_t>) return RUEDA_INT16;
  return std::same_as<T, int32_t> ? RUEDA_INT32 : RUEDA_INT64;
}

// A vector, array or span that outlives the expression of the call: an lvalue or a view.
template <class R>
concept Buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::ranges::borrowed_range<R> && Element<std::remove_const_t<std::ranges::range_value_t<R>>>;
template <class R>
concept MutableBuffer =
    Buffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
template <class R>
using ElementOf = std::ranges::range_value_t<R>;

inline Outcome last_outcome(int code) {
  return code == RUEDA_OK ? Outcome{} : Outcome{static_cast<rueda_status>(code), rueda_last_error()};
}

// Membership in the job, from init() until the session is destroyed. A session ends only what its own init()
// began. If the process had joined the job before, through another session, rueda.h or the front end of a
// framework, init() succeeds, and whoever joined first must also leave.
class Session {
 public:
  Session() = default;
  ~Session() {
    if (is_mine_) rueda_shutdown();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Blocks until every rank has called it (RUEDA_START_TIMEOUT). expected_size: 0 = any.
  Outcome init(int32_t expected_size = 0) {
    rueda_init_options options{};
    options.struct_size = sizeof(options);
    options.expected_size = expected_size;
    const bool was_up = rueda_is_initialized() != 0;
    Outcome outcome = last_outcome(rueda_init(&options));
    if (outcome.ok() && !was_up) is_mine_ = true;
    return outcome;
  }

 private:
  bool is_mine_ = false;
};

inline int rank() { return rueda_rank(); }
inline int size() { return rueda_size(); }
inline int local_rank() { return rueda_local_rank(); }
inline int local_size() { return rueda_local_size(); }

// One submitted operation. Its buffers stay borrowed until wait() returns something other than RUEDA_TIMEOUT.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int64_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  // Waits, because a buffer must not be destroyed while its operation runs.
  ~Handle() {
    if (id_ == 0) return;
    rueda_wait(id_, -1);
    rueda_release(id_);
  }

  [[nodiscard]] bool is_done() const { return rueda_poll(id_) != 0; }
  // timeout_s < 0: waits until the operation ends, which happens at the latest when a peer is lost.
  Outcome wait(double timeout_s = -1) const {
    const int code = rueda_wait(id_, timeout_s);
    if (code == RUEDA_OK) return {};
    // The message for a timeout is written here, because the operation may have ended since.
    const char* why = code == RUEDA_TIMEOUT ? rueda_last_error() : rueda_error(id_);
    return {static_cast<rueda_status>(code), why};
  }
  // As rueda_wait_on_stream. The destructor still waits until the operation has ended.
  Outcome wait_on_stream(void* stream, double timeout_s = -1) const {
    return last_outcome(rueda_wait_on_stream(id_, stream, timeout_s));
  }
  [[nodiscard]] int64_t id() const { return id_; }

 private:
  int64_t id_ = 0;
};

namespace detail {

inline rueda_request request(rueda_collective what, rueda_dtype dtype, const char* name,
                             int32_t process_set) {
  rueda_request made{};
  made.struct_size = sizeof(made);
  made.what = what;
  made.dtype = dtype;
  made.op = RUEDA_SUM;
  made.name = name;
  made.process_set = process_set;
  made.root_rank = -1;
  made.prescale = 1.0;
  made.postscale = 1.0;
  made.device = -1;
  return made;
}

inline Expected<Handle> submit(std::span<const rueda_request> requests) {
  int64_t id = 0;
  const int code = rueda_submit(requests.data(), static_cast<int32_t>(requests.size()), &id);
  if (code != RUEDA_OK) return last_outcome(code);
  return Handle(id);
}

// [rows, row], if this many elements are whole rows.
inline Outcome cut_into_rows(size_t elements, int64_t row, int64_t (&shape)[2]) {
  const auto count = static_cast<int64_t>(elements);
  if (row <= 0 || count % row != 0)
    return {RUEDA_INVALID_ARGUMENT, std::to_string(count) + " elements are not whole rows of " +
                                        std::to_string(row) + "; give a buffer of whole rows."};
  shape[0] = count / row;
  shape[1] = row;
  return {};
}

// Waits for one operation whose result the engine allocated, and copies it out.
template <Element T>
Expected<std::vector<T>> take_rows(const rueda_request& request,
                                   std::vector<int32_t>* received_splits = nullptr) {
  Expected<Handle> handle = submit({&request, 1});
  if (!handle.ok()) return handle.outcome();
  if (Outcome done = handle.value().wait(); !done.ok()) return done;
  rueda_result_info info{};
  info.struct_size = sizeof(info);
  const int code = rueda_result(handle.value().id(), 0, &info);
  if (code != RUEDA_OK) return last_outcome(code);
  std::vector<T> rows(info.bytes / sizeof(T));
  if (!rows.empty()) std::memcpy(rows.data(), info.data, info.bytes);
  if (received_splits != nullptr) {
    received_splits->assign(info.received_splits, info.received_splits + info.split_count);
  }
  return rows;
}

}  // namespace detail

// Elements in a shared buffer: memory that all ranks of a host map, so that an allreduce copies nothing. It
// works before init() and after shutdown, too. The initial contents are unspecified.
template <Element T>
class SharedBuffer {
 public:
  static Expected<SharedBuffer> make(size_t count) {
    const bool is_countable = count <= SIZE_MAX / sizeof(T);
    void* const memory = rueda_alloc(is_countable ? count * sizeof(T) : SIZE_MAX);
    if (memory == nullptr) return last_outcome(RUEDA_UNAVAILABLE);
    return SharedBuffer(static_cast<T*>(memory), count);
  }
  ~SharedBuffer() { rueda_release_memory(data_); }
  SharedBuffer(SharedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::span<T> values() const { return {data_, size_}; }

 private:
  SharedBuffer(T* data, size_t size) : data_(data), size_(size) {}
  T* data_ = nullptr;
  size_t size_ = 0;
};

struct Reduction {
  Op op = Op::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t process_set = 0;
  int32_t priority = 0;  // as in rueda_request
  rueda_wire wire = RUEDA_WIRE_DEFAULT;
};

namespace detail {

// Of count elements, which the result refers to, as to the name; without addresses.
inline rueda_request allreduce(rueda_dtype dtype, const int64_t& count, const std::string& name,
                               const Reduction& how) {
  rueda_request made = request(RUEDA_ALLREDUCE, dtype, name.c_str(), how.process_set);
  made.op = static_cast<int32_t>(how.op);
  made.prescale = how.prescale;
  made.postscale = how.postscale;
  made.priority = how.priority;
  made.wire = how.wire;
  made.ndim = 1;
  made.shape = &count;
  return made;
}

}  // namespace detail

// In place, asynchronously.
template <MutableBuffer R>
Expected<Handle> allreduce_async(R&& values, const std::string& name, const Reduction& how = {}) {
  const auto count = static_cast<int64_t>(std::ranges::size(values));
  rueda_request request = detail::allreduce(dtype_of<ElementOf<R>>(), count, name, how);
  request.input = std::ranges::data(values);
  request.output = std::ranges::data(values);
  return detail::submit({&request, 1});
}

// An allreduce in place of `count` elements that runs again and again: it is described once.
template <Element T>
class PreparedAllreduce {
 public:
  static Expected<PreparedAllreduce> make(size_t count, const std::string& name, const Reduction& how = {}) {
    const auto elements = static_cast<int64_t>(count);
    const rueda_request request = detail::allreduce(dtype_of<T>(), elements, name, how);
    int64_t number = 0;
    const int code = rueda_prepare(&request, &number);
    if (code != RUEDA_OK) return last_outcome(code);
    return PreparedAllreduce(number, count);
  }
  ~PreparedAllreduce() { rueda_forget(number_); }
  PreparedAllreduce(PreparedAllreduce&& other) noexcept
      : number_(std::exchange(other.number_, 0)), count_(other.count_) {}
  PreparedAllreduce& operator=(PreparedAllreduce&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(count_, other.count_);
    return *this;
  }

  // Refused while the last run has not ended, and if values has another length.
  Expected<Handle> start(std::span<T> values) const {
    if (values.size() != count_)
      return Outcome{RUEDA_INVALID_ARGUMENT,
                     "An allreduce of " + std::to_string(count_) + " elements was prepared, but " +
                         std::to_string(values.size()) + " are given; prepare another."};
    rueda_start_item item{number_, values.data(), values.data(), nullptr, 0};
    const int code = rueda_start(&item, 1);
    if (code != RUEDA_OK) return last_outcome(code);
    return Handle(item.handle);
  }

 private:
  PreparedAllreduce(int64_t number, size_t count) : number_(number), count_(count) {}
  int64_t number_ = 0;
  size_t count_ = 0;
};

template <MutableBuffer R>
Outcome allreduce(R&& values, const std::string& name, const Reduction& how = {}) {
  Expected<Handle> handle = allreduce_async(values, name, how);
  return handle.ok() ? handle.value().wait() : handle.outcome();
}

// Copies the values of root (a world rank) to every rank of the set, in place.
template <MutableBuffer R>
Outcome broadcast(R&& values, int32_t root, const std::string& name, int32_t process_set = 0) {
  rueda_request request =
      detail::request(RUEDA_BROADCAST, dtype_of<ElementOf<R>>(), name.c_str(), process_set);
  const auto count = static_cast<int64_t>(std::ranges::size(values));
  request.root_rank = root;
  request.ndim = 1;
  request.shape = &count;
  request.input = std::ranges::data(values);
  request.output = std::ranges::data(values);
  Expected<Handle> handle = detail::submit({&request, 1});
  return handle.ok() ? handle.value().wait() : handle.outcome();
}

// rows: [my_rows * row]. Result: [sum of all ranks' rows * row], rank-major. Ranks may give different
// numbers of rows.
template <Buffer R>
Expected<std::vector<ElementOf<R>>> allgather(R&& rows, const std::string& name, int64_t row = 1,
                                              int32_t process_set = 0) {
  rueda_request request =
      detail::request(RUEDA_ALLGATHER, dtype_of<ElementOf<R>>(), name.c_str(), process_set);
  int64_t shape[2];
  if (Outcome cut = detail::cut_into_rows(std::ranges::size(rows), row, shape); !cut.ok()) return cut;
  request.ndim = 2;
  request.shape = shape;
  request.input = std::ranges::data(rows);
  return detail::take_rows<ElementOf<R>>(request);
}

// rows: [rows * row]. Result: the share of this rank in the reduced rows. The first rows % size ranks get
// one row more.
template <Buffer R>
Expected<std::vector<ElementOf<R>>> reducescatter(R&& rows, const std::string& name, int64_t row = 1,
                                                  const Reduction& how = {}) {
  rueda_request request =
      detail::request(RUEDA_REDUCESCATTER, dtype_of<ElementOf<R>>(), name.c_str(), how.process_set);
  int64_t shape[2];
  if (Outcome cut = detail::cut_into_rows(std::ranges::size(rows), row, shape); !cut.ok()) return cut;
  request.op = static_cast<int32_t>(how.op);
  request.prescale = how.prescale;
  request.postscale = how.postscale;
  request.ndim = 2;
  request.shape = shape;
  request.input = std::ranges::data(rows);
  return detail::take_rows<ElementOf<R>>(request);
}

template <class T>
struct Exchanged {
  std::vector<T> rows;          // [sum of splits * row], ordered by sending rank
  std::vector<int32_t> splits;  // rows received from each rank
};

// splits: rows for each rank of the set, in order; empty = the same number for each.
template <Buffer R>
Expected<Exchanged<ElementOf<R>>> alltoall(R&& rows, std::span<const int32_t> splits, const std::string& name,
                                           int64_t row = 1, int32_t process_set = 0) {
  rueda_request request =
      detail::request(RUEDA_ALLTOALL, dtype_of<ElementOf<R>>(), name.c_str(), process_set);
  int64_t shape[2];
  if (Outcome cut = detail::cut_into_rows(std::ranges::size(rows), row, shape); !cut.ok()) return cut;
  request.ndim = 2;
  request.shape = shape;
  request.input = std::ranges::data(rows);
  request.splits = splits.empty() ? nullptr : splits.data();
  request.split_count = static_cast<int32_t>(splits.size());
  Exchanged<ElementOf<R>> exchanged;
  Expected<std::vector<ElementOf<R>>> received = detail::take_rows<ElementOf<R>>(request, &exchanged.splits);
  if (!received.ok()) return received.outcome();
  exchanged.rows = std::move(received.value());
  return exchanged;
}

inline Outcome barrier(const std::string& name = "barrier", int32_t process_set = 0) {
  const rueda_request request = detail::request(RUEDA_BARRIER, RUEDA_UINT8, name.c_str(), process_set);
  Expected<Handle> handle = detail::submit({&request, 1});
  return handle.ok() ? handle.value().wait() : handle.outcome();
}

}  // namespace rueda
