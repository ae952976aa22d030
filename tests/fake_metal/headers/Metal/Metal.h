// Metal, as far as src/device/metal*.m uses it: see Foundation/Foundation.h.
#ifndef FAKE_METAL_H
#define FAKE_METAL_H
#import <Foundation/Foundation.h>
#include <stdint.h>

typedef struct MTLSize { NSUInteger width, height, depth; } MTLSize;
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  return (MTLSize){width, height, depth};
}

typedef NS_ENUM(NSInteger, MTLGPUFamily) { MTLGPUFamilyApple7 = 1007 };
typedef NS_OPTIONS(NSUInteger, MTLResourceOptions) { MTLResourceStorageModeShared = 0 };
typedef NS_OPTIONS(NSUInteger, MTLResourceUsage) { MTLResourceUsageRead = 1, MTLResourceUsageWrite = 2 };
typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) { MTLPipelineOptionNone = 0 };
typedef NS_OPTIONS(NSUInteger, MTLIndirectCommandType) { MTLIndirectCommandTypeConcurrentDispatch = 32 };
typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
  MTLCommandBufferStatusNotEnqueued,
  MTLCommandBufferStatusEnqueued,
  MTLCommandBufferStatusCommitted,
  MTLCommandBufferStatusScheduled,
  MTLCommandBufferStatusCompleted,
  MTLCommandBufferStatusError
};

@protocol MTLResource <NSObject>
@end
@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
- (void *)contents;
@end
@protocol MTLFunction <NSObject>
@end
@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end
@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@end

@interface MTLCompileOptions : NSObject
@property(readwrite) BOOL fastMathEnabled __attribute__((deprecated));
@end
@class MTLComputePipelineReflection;
@interface MTLComputePipelineDescriptor : NSObject
@property(readwrite) id<MTLFunction> computeFunction;
@property(readwrite) BOOL supportIndirectCommandBuffers;
@property(readwrite) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readwrite) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@end
@interface MTLIndirectCommandBufferDescriptor : NSObject
@property(readwrite) MTLIndirectCommandType commandTypes;
@property(readwrite) BOOL inheritPipelineState;
@property(readwrite) BOOL inheritBuffers;
@property(readwrite) NSUInteger maxKernelBufferBindCount;
@end

@protocol MTLIndirectComputeCommand <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setKernelBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)concurrentDispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)setBarrier;
- (void)clearBarrier;
- (void)reset;
@end
@protocol MTLIndirectCommandBuffer <MTLResource>
- (id<MTLIndirectComputeCommand>)indirectComputeCommandAtIndex:(NSUInteger)index;
@end

@protocol MTLComputeCommandEncoder <NSObject>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage;
- (void)executeCommandsInBuffer:(id<MTLIndirectCommandBuffer>)buffer withRange:(NSRange)range;
- (void)endEncoding;
@end
@protocol MTLCommandBuffer <NSObject>
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (void)commit;
- (void)waitUntilCompleted;
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError *error;
@property(readonly) CFTimeInterval GPUStartTime;
@property(readonly) CFTimeInterval GPUEndTime;
@end
@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
@end

@protocol MTLDevice <NSObject>
@property(readonly) NSString *name;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger currentAllocatedSize;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void *pointer, NSUInteger length))deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError *__autoreleasing *)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(MTLComputePipelineReflection *__autoreleasing *)r
                                                               error:(NSError *__autoreleasing *)error;
- (id<MTLIndirectCommandBuffer>)newIndirectCommandBufferWithDescriptor:(MTLIndirectCommandBufferDescriptor *)descriptor
                                                       maxCommandCount:(NSUInteger)count
                                                               options:(MTLResourceOptions)options;
@end

extern id<MTLDevice> MTLCreateSystemDefaultDevice(void) __attribute__((ns_returns_retained));
#endif
