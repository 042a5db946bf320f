"""What does profiles.proto demand of a request? Every rule, checked by an eye that knows nothing of our encoder."""

from __future__ import annotations

from typing import Any


def violations(request: Any) -> list[str]:
    """Return every way in which an ExportProfilesServiceRequest breaks the rules of its dictionary."""
    d = request.dictionary
    tables = {
        "string": list(d.string_table),
        "mapping": list(d.mapping_table),
        "location": list(d.location_table),
        "function": list(d.function_table),
        "link": list(d.link_table),
        "attribute": list(d.attribute_table),
        "stack": list(d.stack_table),
    }
    found = _shape(tables)
    used: dict[str, set[int]] = {name: {0} for name in tables}

    def use(table: str, *indices: int) -> None:
        used[table].update(indices)
        found.extend(f"{table} {i} is out of range" for i in indices if not 0 <= i < len(tables[table]))

    for m in tables["mapping"]:
        use("string", m.filename_strindex)
        use("attribute", *m.attribute_indices)
    for location in tables["location"]:
        use("mapping", location.mapping_index)
        use("attribute", *location.attribute_indices)
        use("function", *(line.function_index for line in location.lines))
    for f in tables["function"]:
        use("string", f.name_strindex, f.system_name_strindex, f.filename_strindex)
    for a in tables["attribute"]:
        use("string", a.key_strindex, a.unit_strindex)
    for stack in tables["stack"]:
        use("location", *stack.location_indices)
    for profile in _profiles(request):
        use("string", profile.sample_type.type_strindex, profile.sample_type.unit_strindex)
        use("string", profile.period_type.type_strindex, profile.period_type.unit_strindex)
        if len(profile.profile_id) != 16:
            found.append("a profile id without 16 bytes")
        identities = set()
        for sample in profile.samples:
            use("stack", sample.stack_index)
            use("link", sample.link_index)
            use("attribute", *sample.attribute_indices)
            identity = (sample.stack_index, frozenset(sample.attribute_indices), sample.link_index)
            if identity in identities:
                found.append(f"the sample {identity} is there twice")
            identities.add(identity)
            if len(sample.values) != 1:
                found.append("a sample without exactly one value")
    for name, indices in used.items():
        orphans = set(range(len(tables[name]))) - indices
        found += [f"{name} {i} is referenced by nothing" for i in sorted(orphans)]
    found += _mappings_without_build_id(tables)
    return found


def _profiles(request: Any) -> list[Any]:
    return [p for r in request.resource_profiles for s in r.scope_profiles for p in s.profiles]


def _shape(tables: dict[str, list[Any]]) -> list[str]:
    found = []
    for name, table in tables.items():
        if not table:
            found.append(f"the {name} table has no entry 0")
            continue
        if name == "link":
            zero = table[0].trace_id in {b"", bytes(16)} and table[0].span_id in {b"", bytes(8)}
        else:
            zero = table[0] == "" if name == "string" else not table[0].ByteSize()
        if not zero:
            found.append(f"entry 0 of the {name} table is not the zero value")
        keys = [e if name == "string" else e.SerializeToString(deterministic=True) for e in table]
        if len(set(keys)) != len(keys):
            found.append(f"the {name} table holds an entry twice")
    return found


def _mappings_without_build_id(tables: dict[str, list[Any]]) -> list[str]:
    found = []
    for i, m in enumerate(tables["mapping"][1:], 1):
        keys = [tables["string"][tables["attribute"][a].key_strindex] for a in m.attribute_indices]
        if not any(key.startswith("process.executable.build_id.") for key in keys):
            found.append(f"mapping {i} has no build id")
    return found
