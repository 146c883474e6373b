data "aws_region" "here" {}

data "aws_partition" "here" {}

data "aws_caller_identity" "here" {}

locals {
  prefix      = "hybrid-${var.name}"
  account_arn = "arn:${data.aws_partition.here.partition}:ec2:${data.aws_region.here.name}:${data.aws_caller_identity.here.account_id}"
  has_bucket  = var.checkpoint_bucket_arn != ""
}

# Nodes only dial out: no rule lets anything in. Ranks of a gang talk to each other.
resource "aws_security_group" "nodes" {
  name        = "${local.prefix}-nodes"
  description = "Machines of the hybrid pool ${var.name}: outbound, and each other"
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_egress_rule" "out" {
  security_group_id = aws_security_group.nodes.id
  description       = "To the server, the object store and package mirrors"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

# Adapters' traffic is let out by a rule that names the group itself, and by no other.
resource "aws_vpc_security_group_egress_rule" "gang" {
  count = var.efa ? 1 : 0

  security_group_id            = aws_security_group.nodes.id
  description                  = "Ranks of one gang"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.nodes.id
}

resource "aws_vpc_security_group_ingress_rule" "gang" {
  security_group_id            = aws_security_group.nodes.id
  description                  = "Ranks of one gang"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.nodes.id
}

# --- what a machine may do --------------------------------------------------------------------

data "aws_iam_policy_document" "node_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "node" {
  name               = "${local.prefix}-node"
  description        = "What machines of the hybrid pool ${var.name} may do"
  assume_role_policy = data.aws_iam_policy_document.node_trust.json
  tags               = var.tags
}

data "aws_iam_policy_document" "node" {
  count = local.has_bucket ? 1 : 0

  statement {
    sid       = "Bytes"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = ["${var.checkpoint_bucket_arn}/*"]
  }

  statement {
    sid       = "Listing"
    actions   = ["s3:ListBucket"]
    resources = [var.checkpoint_bucket_arn]
  }
}

resource "aws_iam_role_policy" "node" {
  count = local.has_bucket ? 1 : 0

  name   = "checkpoints"
  role   = aws_iam_role.node.id
  policy = data.aws_iam_policy_document.node[0].json
}

resource "aws_iam_instance_profile" "node" {
  name = "${local.prefix}-node"
  role = aws_iam_role.node.name
  tags = var.tags
}

# --- what machines are made from --------------------------------------------------------------

resource "aws_launch_template" "node" {
  name                                 = local.prefix
  description                          = "Machines of the hybrid pool ${var.name}"
  image_id                             = var.image_id
  instance_initiated_shutdown_behavior = "terminate"
  update_default_version               = true
  # with adapters the request names interfaces, beside which EC2 takes no groups of a template
  vpc_security_group_ids = var.efa ? null : [aws_security_group.nodes.id]
  tags                   = var.tags

  iam_instance_profile {
    name = aws_iam_instance_profile.node.name
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = var.root_device_name

    ebs {
      volume_size           = var.disk_gib
      volume_type           = "gp3"
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }
}

# --- what EC2 says of machines ----------------------------------------------------------------

# The queue holds nothing that matters for long: a warning is two minutes before the end.
resource "aws_sqs_queue" "notices" {
  count = var.notice_queue ? 1 : 0

  name                       = "${local.prefix}-notices"
  message_retention_seconds  = 900
  visibility_timeout_seconds = 30
  receive_wait_time_seconds  = 10
  sqs_managed_sse_enabled    = true
  tags                       = var.tags
}

resource "aws_cloudwatch_event_rule" "notices" {
  count = var.notice_queue ? 1 : 0

  name        = "${local.prefix}-notices"
  description = "Interruption warnings and rebalance recommendations, for hybrid"
  tags        = var.tags

  event_pattern = jsonencode({
    source = ["aws.ec2"]
    detail-type = [
      "EC2 Spot Instance Interruption Warning",
      "EC2 Instance Rebalance Recommendation",
    ]
  })
}

resource "aws_cloudwatch_event_target" "notices" {
  count = var.notice_queue ? 1 : 0

  rule = aws_cloudwatch_event_rule.notices[0].name
  arn  = aws_sqs_queue.notices[0].arn
}

data "aws_iam_policy_document" "notices" {
  count = var.notice_queue ? 1 : 0

  statement {
    sid       = "EventsIn"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.notices[0].arn]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [aws_cloudwatch_event_rule.notices[0].arn]
    }
  }
}

resource "aws_sqs_queue_policy" "notices" {
  count = var.notice_queue ? 1 : 0

  queue_url = aws_sqs_queue.notices[0].id
  policy    = data.aws_iam_policy_document.notices[0].json
}

# --- what the server may do -------------------------------------------------------------------

data "aws_iam_policy_document" "server" {
  statement {
    sid = "Look"
    actions = [
      "ec2:DescribeInstances",
      "ec2:DescribeInstanceTypes",
      "ec2:DescribeInstanceTypeOfferings",
      "ec2:DescribeSpotPriceHistory",
      "ec2:DescribeVolumes",
      "ec2:DescribePlacementGroups",
      "pricing:GetProducts",
      "servicequotas:ListServiceQuotas",
    ]
    resources = ["*"]
  }

  statement {
    sid       = "Launch"
    actions   = ["ec2:RunInstances"]
    resources = ["*"]

    condition {
      test     = "ArnEqualsIfExists"
      variable = "ec2:LaunchTemplate"
      values   = [aws_launch_template.node.arn]
    }
  }

  statement {
    sid       = "TagWhatIsLaunched"
    actions   = ["ec2:CreateTags"]
    resources = [for kind in ["instance", "volume", "placement-group"] : "${local.account_arn}:${kind}/*"]

    condition {
      test     = "StringEquals"
      variable = "ec2:CreateAction"
      values   = ["RunInstances", "CreatePlacementGroup"]
    }
  }

  statement {
    sid       = "PlaceGangs"
    actions   = ["ec2:CreatePlacementGroup"]
    resources = ["${local.account_arn}:placement-group/hybrid-*"]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/hybrid:pool"
      values   = [var.name]
    }
  }

  statement {
    sid = "EndItsOwn"
    actions = [
      "ec2:TerminateInstances",
      "ec2:GetConsoleOutput",
      "ec2:DeleteVolume",
      "ec2:DeletePlacementGroup",
    ]
    resources = [for kind in ["instance", "volume", "placement-group"] : "${local.account_arn}:${kind}/*"]

    condition {
      test     = "StringEquals"
      variable = "ec2:ResourceTag/hybrid:pool"
      values   = [var.name]
    }
  }

  dynamic "statement" {
    for_each = aws_sqs_queue.notices

    content {
      sid       = "HearNotices"
      actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage"]
      resources = [statement.value.arn]
    }
  }

  statement {
    sid       = "GiveMachinesTheirRole"
    actions   = ["iam:PassRole"]
    resources = [aws_iam_role.node.arn]

    condition {
      test     = "StringEquals"
      variable = "iam:PassedToService"
      values   = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_policy" "server" {
  name        = "${local.prefix}-server"
  description = "What a hybrid server needs to run the pool ${var.name}"
  policy      = data.aws_iam_policy_document.server.json
  tags        = var.tags
}
