package dialect

func (p postgres) appendUnique(params UniqueParams) Unique {
	values, to := params.args(), "ready"
	if params.Row.State != StateReady {
		to = "waiting"
	}
	unique := Unique{
		Before:    []Query{p.LockUnique(params.Spool, params.Digest)},
		StoreFree: p.of("StoreUnique", to).with(values),
		Store:     p.of("StoreUnique", to, "none").with(values),
	}
	if params.Replace {
		unique.Before = append(unique.Before, p.query("RemoveOfUniqueKey", values))
		unique.Store = p.of("StoreUnique", to, "replace").with(values)
	}
	return unique
}
