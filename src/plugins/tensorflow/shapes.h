// The shapes of results while a graph is built. What is unknown stays unknown. Pure; any thread.
#pragma once

#include "plugins/tensorflow/tf_api.h"

namespace rueda::tensorflow {

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);   // output i as input i
void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status);  // [?, …] per input
void scattered_rows(TF_ShapeInferenceContext* context,
                    TF_Status* status);  // the same, but scalars are refused
void exchanged_rows(TF_ShapeInferenceContext* context, TF_Status* status);  // alltoall: [?, …] and [?]
void one_number(TF_ShapeInferenceContext* context, TF_Status* status);      // []

}  // namespace rueda::tensorflow
