/* `--look`: what is there of a run, seen from outside, also after its user half was killed. */
#ifndef CORA_XDP_LOOK_H
#define CORA_XDP_LOOK_H

#include "options.h"
#include "report.h"

/* What is wrong with the kernel half, or an empty text. A user half that answers watches it by itself, and its pins may be
 * on another mount than this process sees. */
static void cora_look_kernel(struct cora_kernel *k, bool served, char *wrong, size_t room)
{
    char path[CORA_PIN_ROOM];
    *wrong = 0;
    if (cora_folder_is_empty(k->pins)) {
        snprintf(wrong, room, "%s", served ? "" : "is not loaded");
        return;
    }
    for (uint32_t i = 0; i < CORA_PORTS; i++) {
        struct cora_kernel_port *port = &k->ports[i];
        cora_pin_path(k, "link_", cora_port_names[i], path);
        struct bpf_link *link = bpf_link__open(path);
        uint32_t ifindex = link ? cora_link_ifindex(link) : 0;
        if (!ifindex || (port->ifindex && ifindex != port->ifindex))
            snprintf(wrong, room, "is not on %s, the interface of port '%s'", port->interface, cora_port_names[i]);
        bpf_link__destroy(link);
    }
}

/* Totals as far as the pinned maps know them. */
static void cora_look_totals(struct cora_kernel *k, json_t *out)
{
    char path[CORA_PIN_ROOM];
    struct cora_counts counts;
    cora_pin_path(k, "", "cora_counts", path);
    k->counts = bpf_obj_get(path);
    if (k->counts < 0)
        return;
    cora_kernel_totals(k, &counts);
    cora_json_count(out, "arrived", counts.arrived.packets);
    cora_json_count(out, "unserved", counts.faults[CORA_FAULT_USER]);
    close(k->counts);
}

static int cora_look(struct cora_kernel *k, const struct cora_options *o)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char wrong[200];
    json_t *out = json_object(), *places = json_object();
    libbpf_set_print(NULL);
    snprintf(k->pins, sizeof k->pins, "%s", o->pins);
    for (uint32_t i = 0; i < CORA_PORTS; i++)
        k->ports[i].ifindex = if_nametoindex(k->ports[i].interface);
    bool fits = strlen(o->socket) < sizeof address.sun_path;
    if (fits)
        memcpy(address.sun_path, o->socket, strlen(o->socket));
    bool served = fits && cora_control_is_served(&address);
    cora_look_kernel(k, served, wrong, sizeof wrong);
    json_object_set_new(places, "kernel", json_string(wrong));
    json_object_set_new(places, "user", json_string(served ? "" : "does not answer: what the kernel half would hand on "
                                                                  "is dropped"));
    json_object_set_new(out, "places", places);
    cora_look_totals(k, out);
    json_dumpf(out, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(out);
    return 0;
}

#endif
