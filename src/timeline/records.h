// The records that this program reads, by their short names.
#pragma once

#include "rueda/trace/record_reader.h"

namespace rueda::timeline {

using trace::begin_of;
using trace::Call;
using trace::EpochRecord;
using trace::Gap;
using trace::Names;
using trace::Record;
using trace::RecordReader;
using trace::Span;
using trace::TensorRecord;

}  // namespace rueda::timeline
