// What happened to each tensor of one rank, as bars named like those of Horovod's timeline, from the rank's
// records. Rank 0's records also say which ranks were ready for a tensor, before there is a call. Pure.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "rueda/base/clock.h"
#include "rueda/trace/record_reader.h"

namespace rueda::trace {

// Draws bars; those of one tensor lie in one another, in the order of their times.
class BarSink {
 public:
  virtual ~BarSink() = default;
  virtual void begin(std::string_view tensor, std::string_view name, Nanos when) = 0;
  // Of the innermost bar. result: "float32 [2, 3]", of a whole operation; else empty.
  virtual void end(std::string_view tensor, Nanos when, std::string_view result) = 0;
  // A member of the process set is ready for it.
  virtual void ready(std::string_view tensor, Rank member, Nanos when) = 0;
};

class TensorBars {
 public:
  // In the order of the records of one rank. Their texts outlive this object.
  void add(const Call& call) { call_ = call; }
  void add(const TensorRecord& tensor, BarSink& sink);
  void add(const Span& ready, BarSink& sink);  // kReady
  // Records are missing, or there are no more: nothing is under way any longer.
  void close(BarSink& sink);

 private:
  void end_wait(const TensorRecord& tensor, std::string_view name, Nanos when, BarSink& sink);
  void draw_call(const TensorRecord& tensor, BarSink& sink) const;

  Call call_;  // the last one
  // Tensors that are negotiated, and when a rank was ready for each last.
  std::unordered_map<std::string_view, Nanos> waiting_;
};

}  // namespace rueda::trace
