// Foundation, as far as src/device/metal*.m uses it: declarations for a compiler that checks types and selectors, on a
// system without Apple's headers. Written from Apple's public documentation. Nothing is defined.
#ifndef FAKE_FOUNDATION_H
#define FAKE_FOUNDATION_H
#include <objc_types.h>
#include <stdio.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;
typedef signed char BOOL;
typedef double CFTimeInterval;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define NS_OPTIONS(type, name) enum name : type name; enum name : type
#define NS_ENUM(type, name) enum name : type name; enum name : type

typedef struct NSRange { NSUInteger location, length; } NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) { return (NSRange){location, length}; }

@protocol NSObject
@end

__attribute__((objc_root_class))
@interface NSObject <NSObject>
+ (instancetype)alloc;
- (instancetype)init;
+ (instancetype)new;
@end

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char *)text;
@property(readonly) const char *UTF8String;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString *localizedDescription;
@end

typedef struct NSFastEnumerationState {
  unsigned long state;
  __unsafe_unretained id *itemsPtr;
  unsigned long *mutationsPtr;
  unsigned long extra[5];
} NSFastEnumerationState;
@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(__unsafe_unretained id *)buffer
                                    count:(NSUInteger)len;
@end

@interface NSMutableArray<ObjectType> : NSObject <NSFastEnumeration>
- (void)addObject:(ObjectType)one;
- (ObjectType)objectAtIndexedSubscript:(NSUInteger)index;
@end

@interface NSMutableSet<ObjectType> : NSObject <NSFastEnumeration>
- (void)addObject:(ObjectType)one;
@end
#endif
