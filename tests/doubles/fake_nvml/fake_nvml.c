/* A libnvidia-ml.so.1 without GPUs behind it.
 *
 * Its devices are described by the text file that $FAKE_NVML names, read again at every call, so a
 * test can break a device while a program runs. Lines, the last of equals winning:
 *
 *   driver VERSION             absent: the driver is not loaded
 *   count N
 *   gpu I FIELD VALUE          name, uuid, bus, memory_total, memory_used, temperature, power_mw,
 *                              power_limit_mw, utilization, ecc_uncorrected, remap_failed, mig,
 *                              pcie_generation, pcie_width, lost; a missing one is "not supported"
 *   mig I SLOT FIELD VALUE     name, uuid, memory_total, memory_used: an instance of a cut device;
 *                              gi, start, size: its GPU instance, which slots may share, and where
 *   profile I P VALUE          "NAME SIZE LEFT START START ...": profile P of device I, LEFT more
 *   privileged 0               no GPU instance tells where it is
 *   ancestor I J LEVEL         where the PCIe paths of I < J meet; 50 (SYS) if not said
 *   link I L BUS               NVLink L of device I is up and leads to BUS ("switch": an NVSwitch)
 *   nvlink_version N           NVML's number; 4 if not said
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#define LINE 512
#define LINKS 18
#define MIG_SLOTS 7
#define MOST_STARTS 16

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15
};
typedef int Return;
/* A handle is a number: device I is I + 1, MIG slot S of it (I + 1) + 1000 * (S + 1). */
typedef struct Opaque *Device;
typedef unsigned long long u64;

static int started;

static int index_of(Device d) { return (int)((long)d % 1000) - 1; }
static int slot_of(Device d) { return (int)((long)d / 1000) - 1; }

/* The rest of the last line that begins with KEY and a space. */
static int find(const char *key, char *out, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == ' ') {
            snprintf(out, size, "%s", line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static int number(const char *key, u64 *out) {
    char text[LINE];
    if (!find(key, text, sizeof text)) return 0;
    *out = strtoull(text, NULL, 0);
    return 1;
}

static Return usable(Device d) {
    char key[64];
    u64 lost = 0;
    if (!started) return UNINITIALIZED;
    snprintf(key, sizeof key, "gpu %d lost", index_of(d));
    return number(key, &lost) && lost ? GPU_IS_LOST : OK;
}

static void key_of(Device d, const char *field, char *key, size_t size) {
    if (slot_of(d) < 0) snprintf(key, size, "gpu %d %s", index_of(d), field);
    else snprintf(key, size, "mig %d %d %s", index_of(d), slot_of(d), field);
}

static Return text_field(Device d, const char *field, char *out, size_t size) {
    char key[96];
    Return state = usable(d);
    if (state != OK) return state;
    key_of(d, field, key, sizeof key);
    return find(key, out, size) ? OK : NOT_SUPPORTED;
}

static Return number_field(Device d, const char *field, u64 *out) {
    char text[LINE];
    Return state = text_field(d, field, text, sizeof text);
    if (state == OK) *out = strtoull(text, NULL, 0);
    return state;
}

static Return unsigned_field(Device d, const char *field, unsigned *out) {
    u64 value = 0;
    Return state = number_field(d, field, &value);
    if (state == OK) *out = (unsigned)value;
    return state;
}

/* --- the library ---------------------------------------------------------------------------- */

PUBLIC Return nvmlInitWithFlags(unsigned flags) {
    char text[LINE];
    (void)flags;
    if (!find("driver", text, sizeof text)) return DRIVER_NOT_LOADED;
    started++;
    return OK;
}
PUBLIC Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
PUBLIC Return nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started--;
    return OK;
}
PUBLIC const char *nvmlErrorString(Return code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}
PUBLIC Return nvmlSystemGetDriverVersion(char *out, unsigned size) {
    if (!started) return UNINITIALIZED;
    return find("driver", out, size) ? OK : UNINITIALIZED;
}

/* --- devices -------------------------------------------------------------------------------- */

PUBLIC Return nvmlDeviceGetCount_v2(unsigned *out) {
    char text[LINE];
    u64 value = 0;
    /* a driver that was unloaded takes the library's state with it */
    if (!find("driver", text, sizeof text)) started = 0;
    if (!started) return UNINITIALIZED;
    number("count", &value);
    *out = (unsigned)value;
    return OK;
}
PUBLIC Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    unsigned count = 0;
    Return state = nvmlDeviceGetCount_v2(&count);
    if (state != OK) return state;
    if (index >= count) return INVALID_ARGUMENT;
    *out = (Device)(long)(index + 1);
    return OK;
}
PUBLIC Return nvmlDeviceGetName(Device d, char *out, unsigned size) {
    return text_field(d, "name", out, size);
}
PUBLIC Return nvmlDeviceGetUUID(Device d, char *out, unsigned size) {
    return text_field(d, "uuid", out, size);
}
typedef struct { u64 total, free, used; } Memory;
PUBLIC Return nvmlDeviceGetMemoryInfo(Device d, Memory *out) {
    Return state = number_field(d, "memory_total", &out->total);
    if (state != OK) return state;
    out->used = 0;
    number_field(d, "memory_used", &out->used);
    out->free = out->total - out->used;
    return OK;
}
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} Pci;
static void fill(Pci *out, const char *bus_id) {
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", bus_id);
    sscanf(bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
}
PUBLIC Return nvmlDeviceGetPciInfo_v3(Device d, Pci *out) {
    char text[LINE];
    Return state = text_field(d, "bus", text, sizeof text);
    if (state == OK) fill(out, text);
    return state;
}
PUBLIC Return nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned *out) {
    return unsigned_field(d, "pcie_generation", out);
}
PUBLIC Return nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned *out) {
    return unsigned_field(d, "pcie_width", out);
}

/* --- links ---------------------------------------------------------------------------------- */

PUBLIC Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int *out) {
    char key[64];
    u64 level = 50;
    int i = index_of(a), j = index_of(b);
    Return state = usable(a);
    if (state == OK) state = usable(b);
    if (state != OK) return state;
    snprintf(key, sizeof key, "ancestor %d %d", i < j ? i : j, i < j ? j : i);
    number(key, &level);
    *out = (int)level;
    return OK;
}
static Return peer_of(Device d, unsigned link, char *out, size_t size) {
    char key[64];
    Return state = usable(d);
    if (state != OK) return state;
    if (link >= LINKS) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "link %d %u", index_of(d), link);
    return find(key, out, size) ? OK : NOT_FOUND;
}
PUBLIC Return nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *out) {
    char text[LINE];
    Return state = peer_of(d, link, text, sizeof text);
    if (state != OK && state != NOT_FOUND) return state;
    *out = state == OK;
    return OK;
}
PUBLIC Return nvmlDeviceGetNvLinkVersion(Device d, unsigned link, unsigned *out) {
    char text[LINE];
    u64 version = 4;
    Return state = peer_of(d, link, text, sizeof text);
    if (state != OK) return state;
    number("nvlink_version", &version);
    *out = (unsigned)version;
    return OK;
}
PUBLIC Return nvmlDeviceGetNvLinkRemoteDeviceType(Device d, unsigned link, int *out) {
    char text[LINE];
    Return state = peer_of(d, link, text, sizeof text);
    if (state == OK) *out = strcmp(text, "switch") ? 0 : 2;
    return state;
}
PUBLIC Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, Pci *out) {
    char text[LINE];
    Return state = peer_of(d, link, text, sizeof text);
    if (state == OK) fill(out, strcmp(text, "switch") ? text : "00000000:ff:00.0");
    return state;
}

/* --- MIG ------------------------------------------------------------------------------------ */

PUBLIC Return nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending) {
    Return state = unsigned_field(d, "mig", current);
    if (state == OK) *pending = *current;
    return state;
}
PUBLIC Return nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *out) {
    Return state = usable(d);
    if (state == OK) *out = MIG_SLOTS;
    return state;
}
PUBLIC Return nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned slot, Device *out) {
    char key[64], text[LINE];
    Return state = usable(d);
    if (state != OK) return state;
    snprintf(key, sizeof key, "mig %d %u uuid", index_of(d), slot);
    if (!find(key, text, sizeof text)) return NOT_FOUND;
    *out = (Device)((long)d + 1000 * ((long)slot + 1));
    return OK;
}

typedef struct { unsigned start, size; } Placement;
typedef struct { Device device; unsigned id, profile_id; Placement placement; } InstanceInfo;
typedef struct {
    unsigned version, id, p2p, slices, instances, processors, copy, decoders, encoders, jpeg, ofa;
    u64 memory_mb;
    char name[96];
} ProfileInfo;

static Return privileged(Device d) {
    u64 told = 1;
    Return state = usable(d);
    number("privileged", &told);
    return state == OK && !told ? NO_PERMISSION : state;
}
PUBLIC Return nvmlDeviceGetGpuInstanceId(Device d, unsigned *out) {
    return slot_of(d) < 0 ? INVALID_ARGUMENT : unsigned_field(d, "gi", out);
}
/* The handle of a GPU instance is that of the first slot that is in it. */
PUBLIC Return nvmlDeviceGetGpuInstanceById(Device d, unsigned id, Device *out) {
    Return state = privileged(d);
    if (state != OK) return state;
    for (int slot = 0; slot < MIG_SLOTS; slot++) {
        unsigned here;
        Device instance = (Device)((long)d + 1000 * ((long)slot + 1));
        if (unsigned_field(instance, "gi", &here) == OK && here == id) {
            *out = instance;
            return OK;
        }
    }
    return NOT_FOUND;
}
PUBLIC Return nvmlGpuInstanceGetInfo(Device instance, InstanceInfo *out) {
    Return state = unsigned_field(instance, "gi", &out->id);
    if (state == OK) state = unsigned_field(instance, "start", &out->placement.start);
    if (state == OK) state = unsigned_field(instance, "size", &out->placement.size);
    out->device = (Device)(long)(index_of(instance) + 1);
    out->profile_id = 0;
    return state;
}
static Return profile_of(Device d, unsigned profile, char *out, size_t size) {
    char key[64];
    Return state = usable(d);
    if (state != OK) return state;
    snprintf(key, sizeof key, "profile %d %u", index_of(d), profile);
    return find(key, out, size) ? OK : NOT_SUPPORTED;
}
PUBLIC Return nvmlDeviceGetGpuInstanceProfileInfoV(Device d, unsigned profile, ProfileInfo *out) {
    char text[LINE];
    Return state = profile_of(d, profile, text, sizeof text);
    if (state != OK) return state;
    out->id = profile;
    snprintf(out->name, sizeof out->name, "MIG %.*s", (int)strcspn(text, " "), text);
    return OK;
}
PUBLIC Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device d, unsigned profile, unsigned *out) {
    char text[LINE];
    Return state = privileged(d);
    if (state == OK) state = profile_of(d, profile, text, sizeof text);
    if (state == OK && sscanf(text, "%*s %*u %u", out) != 1) return INVALID_ARGUMENT;
    return state;
}
PUBLIC Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    Device d, unsigned profile, Placement *out, unsigned *count) {
    char text[LINE];
    unsigned size = 0, found = 0;
    int read = 0;
    Return state = privileged(d);
    if (state == OK) state = profile_of(d, profile, text, sizeof text);
    if (state != OK) return state;
    if (sscanf(text, "%*s %u %*u%n", &size, &read) != 1) return INVALID_ARGUMENT;
    for (char *at = text + read; *at && found < MOST_STARTS; found++) {
        unsigned start = (unsigned)strtoul(at, &at, 10);
        if (out) out[found] = (Placement){start, size};
    }
    *count = found;
    return OK;
}

/* --- health and telemetry ------------------------------------------------------------------- */

PUBLIC Return nvmlDeviceGetTotalEccErrors(Device d, int type, int counter, u64 *out) {
    (void)counter;
    return number_field(d, type ? "ecc_uncorrected" : "ecc_corrected", out);
}
PUBLIC Return nvmlDeviceGetRemappedRows(
    Device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = *pending = 0;
    return unsigned_field(d, "remap_failed", failed);
}
PUBLIC Return nvmlDeviceGetTemperature(Device d, int sensor, unsigned *out) {
    (void)sensor;
    return unsigned_field(d, "temperature", out);
}
PUBLIC Return nvmlDeviceGetPowerUsage(Device d, unsigned *out) {
    return unsigned_field(d, "power_mw", out);
}
PUBLIC Return nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *out) {
    return unsigned_field(d, "power_limit_mw", out);
}
typedef struct { unsigned gpu, memory; } Utilization;
PUBLIC Return nvmlDeviceGetUtilizationRates(Device d, Utilization *out) {
    out->memory = 0;
    return unsigned_field(d, "utilization", &out->gpu);
}
