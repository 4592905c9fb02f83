// All algorithms, for the registry. Each is explained at the top of its own file.
#pragma once

#include "rueda/schedule/algorithm.h"

namespace rueda::schedule {

extern const Algorithm kAllreduceDirect;
extern const Algorithm kAllreduceFlatGather;
extern const Algorithm kAllreduceTwoLevel;
extern const Algorithm kAllreduceTwoLevelDoubling;
extern const Algorithm kAllreduceRing;
extern const Algorithm kAllreduceRecursiveDoubling;
extern const Algorithm kAllreduceHalvingDoubling;
extern const Algorithm kAllreduceAdasum;
extern const Algorithm kAllreduceEncoded;

extern const Algorithm kAllgatherDirect;
extern const Algorithm kAllgatherRing;
extern const Algorithm kAllgatherBruck;
extern const Algorithm kAllgatherTwoLevel;

extern const Algorithm kBroadcastBinomial;
extern const Algorithm kBroadcastChain;
extern const Algorithm kBroadcastScatterAllgather;
extern const Algorithm kBroadcastTwoLevel;

extern const Algorithm kReducescatterDirect;
extern const Algorithm kReducescatterRing;
extern const Algorithm kReducescatterTwoLevel;

extern const Algorithm kAlltoallPairwise;
extern const Algorithm kAlltoallBruck;

extern const Algorithm kBarrierDissemination;

}  // namespace rueda::schedule
