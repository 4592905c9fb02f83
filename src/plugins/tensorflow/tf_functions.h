// The functions of TensorFlow's C API that the plugin uses, as RUEDA_TF_FUNCTIONS(F):
// F(result, name, (arguments)).
//
// There is no other list: tf_api.h makes the table of pointers from it, and a test compares each line with
// the headers of the installed wheel. All of them are in libtensorflow_framework.so.2 of TensorFlow 2.16
// to 2.21. kernels_experimental.h is not used, because 2.20 removed parts of it.
#pragma once

// clang-format off
#define RUEDA_TF_FUNCTIONS(F)                                                                               \
  /* ops.h: operations and their shapes */                                                                  \
  F(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char* name))                                 \
  F(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                   \
  F(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char* spec))                       \
  F(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char* spec))                      \
  F(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char* spec))                     \
  F(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                             \
  F(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                                  \
    (TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*)))                             \
  F(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                                 \
  F(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                          \
  F(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                \
  F(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))  \
  F(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*)) \
  F(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                 \
  F(TF_ShapeHandle*, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                           \
  F(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, size_t))           \
  F(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                   \
  F(int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                    \
  F(void, TF_ShapeInferenceContextSubshape,                                                                 \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t begin, int64_t end, TF_ShapeHandle*, TF_Status*))  \
  F(void, TF_ShapeInferenceContextConcatenateShapes,                                                        \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))             \
  /* kernels.h: kernels and their calls */                                                                  \
  F(TF_KernelBuilder*, TF_NewKernelBuilder,                                                                 \
    (const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),                         \
     void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*)))                                  \
  F(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                                            \
    (const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),                         \
     void (*compute)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*), void (*destroy)(void*)))   \
  F(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder*, const char* argument))                           \
  F(void, TF_RegisterKernelBuilder, (const char* name, TF_KernelBuilder*, TF_Status*))                      \
  F(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                 \
  F(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                          \
  F(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction*))                             \
  F(void, TF_OpKernelConstruction_GetAttrSize,                                                              \
    (TF_OpKernelConstruction*, const char*, int32_t* list_size, int32_t* total_size, TF_Status*))           \
  F(void, TF_OpKernelConstruction_GetAttrInt64,                                                             \
    (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))                                          \
  F(void, TF_OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction*, const char*, float*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrBool,                                                              \
    (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))                                    \
  F(void, TF_OpKernelConstruction_GetAttrString,                                                            \
    (TF_OpKernelConstruction*, const char*, char*, size_t max_length, TF_Status*))                          \
  F(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                    \
  F(int, TF_NumInputs, (TF_OpKernelContext*))                                                               \
  F(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                 \
  F(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                           \
  F(TF_Tensor*, TF_AllocateOutput,                                                                          \
    (TF_OpKernelContext*, int, TF_DataType, const int64_t* dims, int num_dims, size_t bytes, TF_Status*))   \
  F(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                            \
    (TF_OpKernelContext*, const int* candidates, int num_candidates, int output, const int64_t* dims,       \
     int num_dims, int* forwarded, TF_Status*))                                                             \
  /* tf_tensor.h, tf_status.h */                                                                            \
  F(TF_Tensor*, TF_NewTensor,                                                                               \
    (TF_DataType, const int64_t* dims, int num_dims, void* data, size_t bytes,                              \
     void (*deallocate)(void* data, size_t bytes, void* argument), void* argument))                         \
  F(void, TF_DeleteTensor, (TF_Tensor*))                                                                    \
  F(TF_DataType, TF_TensorType, (const TF_Tensor*))                                                         \
  F(int, TF_NumDims, (const TF_Tensor*))                                                                    \
  F(int64_t, TF_Dim, (const TF_Tensor*, int))                                                               \
  F(size_t, TF_TensorByteSize, (const TF_Tensor*))                                                          \
  F(void*, TF_TensorData, (const TF_Tensor*))                                                               \
  F(TF_Status*, TF_NewStatus, ())                                                                           \
  F(void, TF_DeleteStatus, (TF_Status*))                                                                    \
  F(void, TF_SetStatus, (TF_Status*, TF_Code, const char*))                                                 \
  F(TF_Code, TF_GetCode, (const TF_Status*))                                                                \
  F(const char*, TF_Message, (const TF_Status*))
// clang-format on
