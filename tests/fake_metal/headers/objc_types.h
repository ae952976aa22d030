// What objc/objc.h gives: nothing that the compiler does not know itself. See Foundation/Foundation.h.
#ifndef FAKE_OBJC_TYPES_H
#define FAKE_OBJC_TYPES_H
#define nil ((void *)0)
#endif
