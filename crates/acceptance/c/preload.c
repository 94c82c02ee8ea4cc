// A library that a user preloads.
const char *folioswap_acceptance_preloaded(void) { return "preloaded by the user"; }
