#include <sstream>

#include "rueda/schedule/step.h"

namespace rueda::schedule {
namespace {

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kRecv:
      return "recv";
    case StepKind::kRecvReduce:
      return "recv_reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kFinish:
      return "finish";
    case StepKind::kAdasum:
      return "adasum";
    case StepKind::kEncode:
      return "encode";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  const char* buffer = slice.buffer == Buffer::kInput    ? "in"
                       : slice.buffer == Buffer::kOutput ? "out"
                       : slice.buffer == Buffer::kWire   ? "wire"
                                                         : "scratch";
  return out << buffer << '[' << slice.begin << ',' << slice.begin + slice.count << ')';
}

void print(std::ostream& out, const Step& step) {
  out << name_of(step.kind);
  const char* wire = step.wire == WireType::kAccumulator ? " as accumulators"
                     : step.wire == WireType::kEncoded   ? " encoded"
                                                         : "";
  switch (step.kind) {
    case StepKind::kSend:
      out << ' ' << step.from << " -> " << step.peer << wire;
      break;
    case StepKind::kRecv:
      out << ' ' << step.to << " <- " << step.peer << wire;
      break;
    case StepKind::kRecvReduce:
      out << ' ' << step.to << " = " << step.from << " op <- " << step.peer << wire;
      break;
    case StepKind::kCopy:
    case StepKind::kFinish:
    case StepKind::kEncode:
      out << ' ' << step.to << " = " << step.from;
      break;
    case StepKind::kReduce:
    case StepKind::kAdasum:
      out << ' ' << step.to << " = " << step.from << " op " << step.from2;
      break;
  }
  for (size_t i = 0; i < step.after.size(); ++i) out << (i == 0 ? " after " : ",") << step.after[i];
}

}  // namespace

std::string to_string(const Schedule& schedule) {
  std::ostringstream out;
  out << schedule.name << ": " << schedule.steps.size() << " steps, scratch " << schedule.scratch_count
      << '\n';
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    out << i << ' ';
    print(out, schedule.steps[i]);
    out << '\n';
  }
  return out.str();
}

}  // namespace rueda::schedule
