locals {
  prefix     = "hybrid-${var.name}"
  has_bucket = var.checkpoint_bucket != ""
}

# Nodes only dial out: no rule lets anything in from outside. Ranks of a gang talk to each other.
resource "google_compute_firewall" "gang" {
  project     = var.project
  name        = "${local.prefix}-gang"
  description = "Ranks of one gang of the hybrid pool ${var.name}"
  network     = var.network
  direction   = "INGRESS"
  source_tags = [local.prefix]
  target_tags = [local.prefix]

  allow {
    protocol = "all"
  }
}

# --- what a machine may do --------------------------------------------------------------------

resource "google_service_account" "node" {
  project      = var.project
  account_id   = "${local.prefix}-node"
  display_name = "Machines of the hybrid pool ${var.name}"
}

resource "google_storage_bucket_iam_member" "node" {
  count = local.has_bucket ? 1 : 0

  bucket = var.checkpoint_bucket
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${google_service_account.node.email}"
}

# --- what machines are made from --------------------------------------------------------------

# The request of each machine sets type, market, labels, scheduling and user data, and goes before it.
resource "google_compute_instance_template" "node" {
  project      = var.project
  region       = var.region
  name_prefix  = "${local.prefix}-"
  description  = "Machines of the hybrid pool ${var.name}"
  machine_type = "n1-standard-1"
  labels       = var.labels
  tags         = [local.prefix]

  disk {
    source_image = var.image
    boot         = true
    auto_delete  = true
    disk_size_gb = var.disk_gib
    disk_type    = "pd-balanced"
    labels       = var.labels
  }

  network_interface {
    subnetwork = var.subnetwork
  }

  service_account {
    email  = google_service_account.node.email
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot = false
    enable_vtpm        = true
  }

  lifecycle {
    create_before_destroy = true
  }
}

# --- what the server may do -------------------------------------------------------------------

resource "google_service_account" "server" {
  project      = var.project
  account_id   = "${local.prefix}-server"
  display_name = "What a hybrid server runs the pool ${var.name} as"
}

resource "google_project_iam_custom_role" "server" {
  project     = var.project
  role_id     = replace("${local.prefix}-server", "-", "_")
  title       = "hybrid server, pool ${var.name}"
  description = "What a hybrid server needs to run the pool ${var.name}"

  permissions = [
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
    "compute.machineTypes.list",
    "compute.projects.get",
    "compute.regions.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
  ]
}

resource "google_project_iam_member" "server" {
  project = var.project
  role    = google_project_iam_custom_role.server.id
  member  = "serviceAccount:${google_service_account.server.email}"
}

# Only this one account can be given to a machine.
resource "google_service_account_iam_member" "server" {
  service_account_id = google_service_account.node.name
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${google_service_account.server.email}"
}
