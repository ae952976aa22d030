// See sys/auxv.h.
#define HWCAP_CPUID 0                     // MIDR_EL1 cannot be read
