package service

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	entry := func(id, checks, remedy string, pitfalls ...int) preflight.Entry {
		return preflight.Entry{ID: id, Subject: "service", Severity: schemas.SeverityError, Checks: checks, Remedy: remedy, When: preflight.NotYet, Pitfalls: pitfalls}
	}
	document := entry("service.document", "what the service answers with is JSON of a known form", remedyDocument)
	document.Rule = "a service is measured only when its state is known"
	answer := entry("service.request", "one request is answered exactly: status 200, the tokens asked for, ended by length", remedyRequest, 38, 39)
	return []preflight.Entry{
		document, answer,
		entry("service.models", "every model that requests go to is registered", remedyModels, 39),
		entry("service.placement", "every model has a replica that is READY, and none that FAILED or is on its way", remedyPlacement, 39),
		entry("service.limits", "no rate limit is set", remedyLimits, 40),
		entry("service.outstanding", "no request is outstanding", remedyOutstanding, 42),
		entry("service.deploy", "a deployment is whole: its status is ok, and no node has failed", remedyDeploy, 56),
		entry("service.nodes", "as many nodes have joined as the configuration says", remedyNodes, 9),
		entry("service.energy", "the power of at least one GPU is reported, as a number", remedyEnergy, 60),
	}
}

const (
	remedyDocument    = "look at what lies behind the address, and at the service's log"
	remedyRequest     = "send the request by hand (`assay probe`) and look at the service's log"
	remedyModels      = "use the names that /v1/models lists, or deploy the model"
	remedyPlacement   = "wait until it is ready, or deploy it again; the service's log says why it failed"
	remedyLimits      = "unset AEGAEON_MAX_REQUESTS_PER_SECOND and AEGAEON_MAX_TOKENS_PER_SECOND and start the service again"
	remedyOutstanding = "wait until request_routing.total is 0: requests whose client has gone go on"
	remedyDeploy      = "deploy again, or restart the service where caches and placements disagree"
	remedyNodes       = "start Ray on every node with the resources node_0, node_1, ..., or correct nnodes"
	remedyEnergy      = "install nvidia-smi on the service's host, or set AEGAEON_NVIDIA_SMI_COMMAND; otherwise leave energy out"
)
